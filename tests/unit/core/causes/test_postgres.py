"""What cannot be provoked on a shared server."""

import pytest

from orderflow.core.causes.postgres import sentence
from orderflow.core.causes.start import START_IT


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("FATAL:  sorry, too many clients already", "no connection left"),
        (
            "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute",
            "no connection left",
        ),
        ("FATAL:  the database system is starting up", "is starting or stopping"),
        ('FATAL:  role "shop" does not exist', "has no user shop"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.9", user "shop", no encryption', "no rule that lets us in"),
        ("SSL error: certificate verify failed", "nobody whom we trust"),
        ("Connection refused", f"connection refused): {START_IT} or set ORDERFLOW_DATABASE__DSN"),
        ("connection timeout expired", "does not answer in time"),
        ("FATAL:  Passwort-Authentifizierung fehlgeschlagen", "Passwort-Authentifizierung fehlgeschlagen"),
    ],
)
def test_each_text_is_a_sentence(words: str, said: str) -> None:
    told = sentence(f'connection to server at "10.0.0.1", port 5432 failed: {words}\n', "10.0.0.1:5432/orderflow")

    assert said in told
    assert "\n" not in told
