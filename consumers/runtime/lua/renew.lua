-- RENEW: a lease more from now. A claim that this token has completed is still its own.
-- KEYS[1] the claim · ARGV token, lease ms, ttl ms -> 1 ok | 0 lost
local stored = redis.call('HMGET', KEYS[1], 'st', 'tok')
if stored[2] ~= ARGV[1] then return 0 end
if stored[1] == 'C' then return 1 end
if stored[1] ~= 'P' then return 0 end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('HSET', KEYS[1], 'exp', now + tonumber(ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
