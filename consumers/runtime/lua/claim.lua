-- CLAIM: who may run this event now?
-- KEYS[1] the claim · ARGV token, payload hash, lease ms, ttl ms, replay count, hop, alone (1|0)
-- -> {answer, crashes, busy ms, owner}; the answers are those of consumers.runtime.claims.Answer
local token, hash, lease, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local replay, hop, alone = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local POISON_CRASHES = 3

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local stored = redis.call('HMGET', KEYS[1], 'st', 'tok', 'exp', 'ph', 'crashes', 'unsure', 'replay', 'hop', 'run')
local state, owner, expires, stored_hash = stored[1] or 'R', stored[2] or '', tonumber(stored[3] or 0), stored[4] or hash
local crashes, unsure = tonumber(stored[5] or 0), stored[6] == '1'
local routed_replay, routed_hop = tonumber(stored[7] or 0), tonumber(stored[8] or 0)
local announced = stored[9] == '1'

if stored_hash ~= hash then return {'mismatch', crashes, 0, ''} end
if state == 'C' then return {'done', 0, 0, ''} end
-- Before BUSY and before the stolen lease: an old copy must not take the lease of the copy that replaced it.
if replay < routed_replay or (replay == routed_replay and hop < routed_hop) then
  return {'superseded', crashes, 0, ''}
end

local changed = false
if state == 'P' and owner ~= token then
  if expires > now then return {'busy', crashes, expires - now, owner} end
  -- The lease is over. Only an announced run (START) counts beyond the first interruption: whoever
  -- merely held the claim beside the record that killed the process is innocent.
  if crashes == 0 or announced then crashes = crashes + 1 end
  state, owner, unsure, announced, changed = 'R', '', true, false, true
end
-- A replay begins with a clean slate, so that a replayed POISON_CRASH runs.
if replay > routed_replay and crashes > 0 then crashes, changed = 0, true end

local function store(fields)
  redis.call('HSET', KEYS[1], 'ph', hash, 'crashes', crashes, 'unsure', unsure and '1' or '0', unpack(fields))
  redis.call('PEXPIRE', KEYS[1], ttl)
end

local mine = state == 'P'  -- the same token asks again: its first answer was lost, so it gets that one
if not mine and crashes > 0 and crashes < POISON_CRASHES and not alone then
  if changed then store({'st', 'R', 'tok', '', 'exp', '0', 'run', '0'}) end
  return {'alone', crashes, 0, ''}
end

if replay > routed_replay or (replay == routed_replay and hop > routed_hop) then
  routed_replay, routed_hop = replay, hop
end
store({'st', 'P', 'tok', token, 'exp', now + lease, 'run', (mine and announced) and '1' or '0',
       'replay', routed_replay, 'hop', routed_hop})
if crashes >= POISON_CRASHES then return {'poison', crashes, 0, ''} end
return {unsure and 'unsure' or 'owned', crashes, 0, ''}
