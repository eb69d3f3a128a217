"""From what libpq and the server say of a refused connection to one sentence.

psycopg gives no SQLSTATE for a connection that never was, so the English words of both decide; a server whose
`lc_messages` is another language is quoted as it speaks.
"""

import re

from orderflow.core.causes.start import START_IT

_DSN = "ORDERFLOW_DATABASE__DSN"
_APPLY = "`orderflow db apply` (part of `orderflow provision`)"

# The first that is found decides. `{0}` is the name that the message has in quotes.
_TEXTS: tuple[tuple[str, str], ...] = (
    (
        # The roles that `database.ROLES` names; our session starts under one of them.
        r'role "(orderflow_\w+)" does not exist',
        "lets us in, but the role {0} is not there: run " + _APPLY,
    ),
    (
        r'permission denied to set role "([^"]*)"',
        "lets us in, but not as the role {0}: `GRANT {0} TO` the user of "
        + _DSN
        + ", or run `orderflow db apply` as it",
    ),
    (
        r'password authentication failed for user "([^"]*)"',
        "refuses the password of user {0}: set it in " + _DSN,
    ),
    (r"no password supplied", "wants a password and got none: set it in " + _DSN),
    (
        r'database "([^"]*)" does not exist',
        "has no database {0}: create it (`createdb {0}`), or set the database's name in " + _DSN,
    ),
    (r'role "([^"]*)" does not exist', "has no user {0}: create it, or set the user in " + _DSN),
    (r'role "([^"]*)" is not permitted to log in', "does not let user {0} log in: set another user in " + _DSN),
    (
        r"no pg_hba\.conf entry",
        "has no rule that lets us in from here: add a line to its pg_hba.conf, or set sslmode=require in " + _DSN,
    ),
    (
        r"too many clients|remaining connection slots|too many connections",
        "has no connection left for us: raise its max_connections, or lower ORDERFLOW_DATABASE__POOL_SIZE",
    ),
    (
        r"starting up|shutting down|in recovery mode|not yet accepting connections",
        "is starting or stopping: wait, then run it again",
    ),
    (
        r"server does not support SSL",
        "does not speak TLS and " + _DSN + " asks for it: take sslmode out, or switch ssl on in the server",
    ),
    (
        r"certificate verify failed",
        "shows a certificate that nobody whom we trust has signed: set sslrootcert=FILE in " + _DSN,
    ),
    (
        r'root certificate file "([^"]*)" does not exist',
        "was not asked: the file of sslrootcert in " + _DSN + ", {0}, is not there",
    ),
    (
        r"does not match host name",
        "shows a certificate for another host name: use a name that stands in it in " + _DSN,
    ),
    (
        r"could not translate host name|Name or service not known|failed to resolve host",
        "cannot be found, no machine has this name: set " + _DSN,
    ),
    (
        r"Connection refused|No such file or directory",
        f"does not answer (nothing listens there: connection refused): {START_IT} or set {_DSN}",
    ),
    (r"timeout expired|timed out", "does not answer in time: look whether it hangs, or set " + _DSN),
)


def sentence(error: BaseException | str, where: str) -> str:
    """Return what is wrong with PostgreSQL at `where` (host:port/database) and which setting mends it."""
    said = str(error).strip()
    for pattern, told in _TEXTS:
        if found := re.search(pattern, said):
            return f"PostgreSQL at {where} {told.format(*found.groups())}"
    first = said.splitlines()[0] if said else type(error).__name__
    return f"PostgreSQL at {where} does not let us in ({first}): look at its log, and at {_DSN}"
