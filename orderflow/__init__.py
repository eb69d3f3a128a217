"""orderflow: a shop's order events on Kafka, from one order API to many consumer groups."""

from orderflow.core.rootcheck import assert_root_packages_are_ours

# Before anything imports `retry`: a public package of that name shadows ours in an editable
# install, and the failure would otherwise be an unrelated AttributeError somewhere deep.
assert_root_packages_are_ours()
