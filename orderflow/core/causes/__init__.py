"""Why a service does not let us in: from its client's words to a cause, and to the setting that mends it. No I/O.

kafka.py     librdkafka's errors
tls.py       what is wrong with a certificate, the same for every service
redis.py     redis-py's errors
postgres.py  what libpq says of a refused connection
smtp.py      smtplib's errors
start.py     how to start one here, the same words for all
"""
