"""A handler times out and leaves the claim behind. Here: what Redis answers after its RELEASE."""

from collections.abc import Callable

from consumers.runtime.claims import Answer, ClaimRequest, Claims, Release


def request(token: str, hop: int = 0) -> ClaimRequest:
    return ClaimRequest("event", token, b"12345678", (0, hop), alone=False)


def test_while_its_thread_runs_nobody_else_may(open_claims: Callable[..., Claims]) -> None:
    claims = open_claims()
    claims.claim([request("slow")])
    [reply] = claims.claim([request("next")])
    assert (reply.answer, reply.owner) == (Answer.BUSY, "slow")


def test_after_its_release_the_next_delivery_runs_at_once_and_is_told(open_claims: Callable[..., Claims]) -> None:
    claims = open_claims()
    claims.claim([request("slow")])
    assert claims.release([Release("event", "slow", unsure=True, started=True, routed=None)]) == [True]
    [reply] = claims.claim([request("next")])
    assert (reply.answer, reply.crashes) == (Answer.UNSURE, 0)


def test_the_retry_copy_is_told_too(open_claims: Callable[..., Claims]) -> None:
    claims = open_claims()
    claims.claim([request("slow")])
    claims.release([Release("event", "slow", unsure=True, started=True, routed=(0, 1))])
    [reply] = claims.claim([request("retry", hop=1)])
    assert reply.answer is Answer.UNSURE


def test_a_clean_failure_later_does_not_take_the_doubt_back(open_claims: Callable[..., Claims]) -> None:
    claims = open_claims()
    claims.claim([request("slow")])
    claims.release([Release("event", "slow", unsure=True, started=True, routed=(0, 1))])
    claims.claim([request("retry", hop=1)])
    claims.release([Release("event", "retry", unsure=False, started=True, routed=(0, 2))])
    [reply] = claims.claim([request("again", hop=2)])
    assert reply.answer is Answer.UNSURE
