"""The guided run: a whole shop on free ports, 200 orders, some of them odd, and books that must balance.

plan.py        pure: what must become of each sample order
client.py      places the orders over HTTP
odd.py         the odd ones: one record of garbage, and what became of each
facts.py       what was found in topics, tables and mail folder, as plain values
topics.py      reads topics and positions
tables.py      reads tables and mails
accounting.py  pure: expected against found; every difference by event
progress.py    pure: where each group stands
display.py     what is seen while it runs: one live table, or plain lines
summary.py     what is told at the end
run.py         the run itself
"""
