-- RELEASE: given back, after the handler's thread has returned or before it was started.
-- KEYS[1] the claim · ARGV token, ttl ms, unsure (1|0), started (1|0) [, replay count, hop of the copy]
-- -> 1 ok | 0 lost. Repeated: lost, and nothing changes.
local stored = redis.call('HMGET', KEYS[1], 'st', 'tok', 'replay', 'hop')
if stored[1] ~= 'P' or stored[2] ~= ARGV[1] then return 0 end
local fields = {'st', 'R', 'tok', '', 'exp', '0', 'run', '0'}
local function set(name, value)
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
-- Sticky: only COMPLETE takes `unsure` back.
if ARGV[3] == '1' then set('unsure', '1') end
-- It came back alive. A handler that never started proves nothing, so its crashes stay.
if ARGV[4] == '1' then set('crashes', '0') end
if ARGV[5] then
  local replay, hop = tonumber(ARGV[5]), tonumber(ARGV[6])
  local routed_replay, routed_hop = tonumber(stored[3] or 0), tonumber(stored[4] or 0)
  if replay > routed_replay or (replay == routed_replay and hop > routed_hop) then
    set('replay', replay)
    set('hop', hop)
    -- The next replay count is stored with a dead letter: its crashes die with it.
    if replay > routed_replay and ARGV[4] ~= '1' then set('crashes', '0') end
  end
end
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
