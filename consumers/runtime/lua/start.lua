-- START: announce a run. Only an announced run raises `crashes` beyond 1 when its lease is stolen.
-- KEYS[1] the claim · ARGV token, ttl ms -> 1 ok | 0 lost. Repeated by the owner: ok again.
local stored = redis.call('HMGET', KEYS[1], 'st', 'tok')
if stored[1] ~= 'P' or stored[2] ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'run', '1')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
