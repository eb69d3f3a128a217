"""`orderflow doctor`: one look at everything that the product needs, each check with the sentence that mends it.

finding.py   what a check says
judge.py     from facts to findings; no I/O
machine.py   looks at this machine: Python, libraries, ports, disk
services.py  looks at PostgreSQL, Redis and the mail server
kafka.py     looks at the brokers, the topics and the groups
checks.py    the one table of checks, and what each of them needs
run.py       runs them side by side, within a time
"""
