"""What must be there before anything runs: tables, topics, and the place where each group starts.

problem.py    what a check finds
cluster.py    what the cluster says: topics, settings, groups, offsets
database.py   migrations, per owner
topics.py     topics as the contract wants them
positions.py  where a group starts; somebody chooses it, nothing else does
trim.py       what a group has resolved goes from its own topics
readiness.py  what a worker asks before it starts
provision.py  all of it, and the first positions of a new cluster
"""
