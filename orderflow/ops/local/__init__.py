"""The whole shop on this machine: the stack's parts, and every role of the product as a process.

roles.py     one role: what runs, and when it is ready
ports.py     where the roles listen
shop.py      parts and roles together: start, look after, stop
status.py    what the roles do now
activate.py  what makes a shell find `orderflow`
up.py        `orderflow up` and `orderflow down`
"""
