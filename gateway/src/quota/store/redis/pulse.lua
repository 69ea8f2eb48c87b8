-- A sign of life of one gateway, and what it needs to know of the server.
--
-- KEYS[1]  the gateways that showed themselves, a sorted set by their last sign, in milliseconds
-- ARGV     1 this gateway, 2 the key that remembers this server's memory, 3 the server's run id, 4 a random number,
--          5 milliseconds after which a silent gateway is gone
-- Answers  {incarnation, gateways}
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local memory = redis.call('HMGET', ARGV[2], 'incarnation', 'run')
local incarnation = tonumber(memory[1])
if not incarnation or memory[2] ~= ARGV[3] then
  incarnation = now * 1000 + tonumber(ARGV[4]) % 1000
  redis.call('HSET', ARGV[2], 'incarnation', string.format('%d', incarnation), 'run', ARGV[3], 'since', string.format('%d', now))
end
redis.call('ZADD', KEYS[1], string.format('%d', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%d', now - tonumber(ARGV[5])))
redis.call('PEXPIRE', KEYS[1], 60000)
return { incarnation, redis.call('ZCARD', KEYS[1]) }
