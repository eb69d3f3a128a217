"""The real parts on this machine, with nothing but pip: Kafka, Redis, PostgreSQL and a mail sink.

`stack.LocalStack` is the whole of it for tests and the demo; `orderflow stack up|down|status` is the
same thing for people. Nothing is imported here: the mail sink is a process of its own and stays small.
"""
