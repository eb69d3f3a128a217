from producers.ids import new_id


def test_new_ids_are_version_7_different_and_rise_with_time() -> None:
    made = [new_id() for _ in range(1_000)]
    assert {one.version for one in made} == {7}
    assert len(set(made)) == 1_000
    assert made == sorted(made)
