"""`orderflow janitor`: what nobody needs any more is deleted, in small steps beside the running shop.

Not deleted, ever: an event that Kafka does not have; orders; a mail's row (`sent` means: never again); the audit's
rows; claims in Redis, which end by themselves.

sweeping.py  one table: count, delete in batches
janitor.py   all of them
"""
