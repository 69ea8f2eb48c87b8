-- A heartbeat: returns the state of the server and, if asked, counts all gateways. Writes at most once a second.
--
-- KEYS[1]  the gateways, a hash: a time of each gateway, in milliseconds, at most a second before its last heartbeat
-- ARGV     1 this gateway, 2 the key that remembers this server's memory, 3 the server's run id, 4 a random number,
--          5 the age of a time, in milliseconds, at which a gateway is removed; empty to skip the count
-- Answers  {incarnation, now, gateways, gateways whose name comes before this one's}; the last two are 0 without a count
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local memory = redis.call('HMGET', ARGV[2], 'incarnation', 'run')
local incarnation = tonumber(memory[1])
if not incarnation or memory[2] ~= ARGV[3] then
  incarnation = now * 1000 + tonumber(ARGV[4]) % 1000
  redis.call('HSET', ARGV[2], 'incarnation', string.format('%d', incarnation), 'run', ARGV[3], 'since', string.format('%d', now))
end
local gateways, before = 0, 0
if ARGV[5] ~= '' then
  local mine = tonumber(redis.call('HGET', KEYS[1], ARGV[1]))
  if not mine or mine <= now - 1000 or mine > now then
    redis.call('HSET', KEYS[1], ARGV[1], string.format('%d', now))
  end
  local signs = redis.call('HGETALL', KEYS[1])
  for place = 1, #signs, 2 do
    if tonumber(signs[place + 1]) < now - tonumber(ARGV[5]) then
      redis.call('HDEL', KEYS[1], signs[place])
    else
      gateways = gateways + 1
      if signs[place] < ARGV[1] then before = before + 1 end
    end
  end
end
return { incarnation, now, gateways, before }
