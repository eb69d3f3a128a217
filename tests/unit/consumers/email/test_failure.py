"""What a mail server's refusals mean."""

import pytest

from consumers.email.mailer import failure
from retry.errors import HandlerError, Outage, Reject, Retry


@pytest.mark.parametrize(
    ("code", "about_recipient", "meaning"),
    [
        (421, True, Outage),
        (421, False, Outage),
        (450, True, Retry),
        (451, True, Retry),
        (452, False, Retry),
        (530, True, Outage),
        (535, True, Outage),
        (550, True, Reject),
        (554, True, Reject),
        (550, False, Outage),
        (554, False, Outage),
        (-1, True, Outage),
        (999, True, Outage),
    ],
)
def test_each_answer_has_one_meaning(code: int, about_recipient: bool, meaning: type[HandlerError]) -> None:  # noqa: FBT001
    assert type(failure((code, b""), about_recipient=about_recipient)) is meaning


def test_of_the_servers_words_only_the_codes_are_kept() -> None:
    error = failure((550, b"5.1.1 <kim@customers.example>: no such user"), about_recipient=True)

    assert str(error) == "the mail server answered 550 5.1.1"
