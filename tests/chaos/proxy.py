"""A TCP proxy in front of a server, so that the network between can be cut, or hang."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Self

HOST = "127.0.0.1"
CHUNK = 65_536


class Network:
    """The loop in which all proxies run; a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in the loop, and wait for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    @staticmethod
    async def _end() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Proxy:
    """Passes bytes on from one loopback port to another."""

    def __init__(self, network: Network, port: int, to_port: int) -> None:
        self.port = port
        self._network = network
        self._to_port = to_port
        self._server: asyncio.Server | None = None
        self._passing = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._passing.set()
        network.run(self._listen())

    def cut(self) -> None:
        """End every connection and refuse new ones, until `mend`."""
        self._network.run(self._cut())

    def hang(self) -> None:
        """Keep every connection, pass nothing on, until `mend`."""
        self._network.run(self._hang())

    def mend(self) -> None:
        """Pass on again; what hung is delivered now."""
        self._network.run(self._mend())

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _hang(self) -> None:
        self._passing.clear()

    async def _mend(self) -> None:
        self._passing.set()
        await self._listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            await self._passing.wait()
            back, there = await asyncio.open_connection(HOST, self._to_port)
            self._writers.add(there)
            await asyncio.gather(self._pass(reader, there), self._pass(back, writer))
        except OSError:
            pass  # either end went; both go
        finally:
            for one in (writer, there):
                if one is not None:
                    self._writers.discard(one)
                    one.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await self._passing.wait()
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()
