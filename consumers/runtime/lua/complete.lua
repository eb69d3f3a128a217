-- COMPLETE: the effect is there. The token stays, so that the same call repeated is ok again.
-- KEYS[1] the claim · ARGV token, ttl ms -> 1 ok | 0 lost
local stored = redis.call('HMGET', KEYS[1], 'st', 'tok')
if stored[2] ~= ARGV[1] or (stored[1] ~= 'P' and stored[1] ~= 'C') then return 0 end
redis.call('HSET', KEYS[1], 'st', 'C', 'exp', '0', 'crashes', '0', 'unsure', '0', 'run', '0')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
