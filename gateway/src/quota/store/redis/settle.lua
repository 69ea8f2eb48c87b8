-- Executes one statement about one bucket: the same steps in the same order as `Bucket::apply` in ledger/bucket.rs, whose
-- comments say why. A test runs random statements through both and compares.
--
-- KEYS[1]  the bucket, a hash: "books" = "minute minute_charged day_charged incarnation learning_until", and one field per
--          node = "seq minute minute_units minute_spent day_units"
-- ARGV     1 node, 2 seq, 3 heard, 4 claimed minute (-1: none), 5 minute spent, 6 day spent, 7 held, 8 need, 9 spare,
--          10 limit of the minute, 11 limit of the day, 12 the key that remembers this server's memory, 13 the server's
--          run id, 14 a random number
-- Answers  {granted, now, minute, minute charged, day charged, own minute, own day, nodes, held elsewhere,
--          learning until (-1: not learning), incarnation}, or {} for a stale statement. All numbers stay below 2^53.
local MINUTES_PER_DAY, STEP_BACK_MAX, LEARNING, NODES_MAX = 1440, 15, 250, 64
-- For a memory that is new: nodes connect again one after the other, within a quarter of a second of each other.
local LEARNING_ANEW = 500
local floor, max, min = math.floor, math.max, math.min
local node = ARGV[1]
local seq, heard = tonumber(ARGV[2]), tonumber(ARGV[3])
local claim_minute, claim_minute_spent, claim_day_spent = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local held, need, spare = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local limit_minute, limit_day = tonumber(ARGV[10]), tonumber(ARGV[11])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
local now_minute = floor(now / 60000)

local function day_of(minute) return floor(minute / MINUTES_PER_DAY) end

-- The life of the server's memory: a new run of the server may have lost writes, and an emptied one has lost this key.
local memory = redis.call('HMGET', ARGV[12], 'incarnation', 'run', 'since')
local incarnation, since = tonumber(memory[1]), tonumber(memory[3])
if not incarnation or memory[2] ~= ARGV[13] then
  incarnation, since = now * 1000 + tonumber(ARGV[14]) % 1000, now
  redis.call('HSET', ARGV[12], 'incarnation', string.format('%d', incarnation), 'run', ARGV[13], 'since', string.format('%d', since))
end

local minute, minute_charged, day_charged, bucket_incarnation, learning_until = now_minute, 0, 0, incarnation, 0
local components, count = {}, 0
local fields = redis.call('HGETALL', KEYS[1])
for place = 1, #fields, 2 do
  local a, b, c, d, e = string.match(fields[place + 1], '^(%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+) (%-?%d+)$')
  a, b, c, d, e = tonumber(a), tonumber(b), tonumber(c), tonumber(d), tonumber(e)
  if fields[place] == 'books' then
    minute, minute_charged, day_charged, bucket_incarnation, learning_until = a, b, c, d, e
  else
    components[fields[place]] = { seq = a, minute = b, units = c, spent = d, day = e }
    count = count + 1
  end
end

if components[node] and seq <= components[node].seq then return {} end

local function enter(other)
  if other == minute then return end
  if day_of(other) ~= day_of(minute) then
    day_charged, components, count = 0, {}, 0
    redis.call('DEL', KEYS[1])
  end
  minute, minute_charged = other, 0
end

if minute < now_minute or minute > now_minute + STEP_BACK_MAX then enter(now_minute) end
if claim_minute >= minute and claim_minute <= now_minute + STEP_BACK_MAX then enter(claim_minute) end

local mine = components[node] or { seq = 0, minute = minute, units = 0, spent = 0, day = 0 }
if mine.minute ~= minute then mine.minute, mine.units, mine.spent = minute, 0, 0 end

local same_minute, same_day = claim_minute == minute, claim_minute >= 0 and day_of(claim_minute) == day_of(minute)
local claim_minute_units, claim_day_units = claim_minute_spent + held, claim_day_spent + held
local forgotten = same_day and (claim_day_units > mine.day or heard > mine.seq or (same_minute and claim_minute_units > mine.units))
if bucket_incarnation ~= incarnation or forgotten then
  bucket_incarnation, learning_until = incarnation, now + LEARNING
end
local until_ = min(max(learning_until, since + LEARNING_ANEW), now + LEARNING)
local learning = until_ > now

local minute_units, day_units = same_minute and claim_minute_units or 0, same_day and claim_day_units or 0
minute_charged = max(minute_charged - mine.units, 0) + minute_units
day_charged = max(day_charged - mine.day, 0) + day_units
mine.units, mine.spent, mine.day, mine.seq = minute_units, max(minute_units - held, 0), day_units, seq

if not components[node] then
  if count >= NODES_MAX then
    local silent
    for name, one in pairs(components) do
      if not silent or one.minute < components[silent].minute then silent = name end
    end
    components[silent] = nil
    redis.call('HDEL', KEYS[1], silent)
  end
  components[node] = mine
end

local nodes, held_elsewhere = 0, 0
for name, one in pairs(components) do
  if one.minute == minute then
    nodes = nodes + 1
    if name ~= node then held_elsewhere = held_elsewhere + max(one.units - one.spent, 0) end
  end
end

local granted = 0
if not learning then
  local room = min(max(limit_minute - minute_charged, 0), max(limit_day - day_charged, 0))
  granted = min(need, room)
  granted = granted + min(spare, floor((room - granted) / max(nodes * 2, 2)))
end
minute_charged, day_charged = minute_charged + granted, day_charged + granted
mine.units, mine.day = mine.units + granted, mine.day + granted

redis.call('HSET', KEYS[1],
  'books', string.format('%d %d %d %d %d', minute, minute_charged, day_charged, bucket_incarnation, learning_until),
  node, string.format('%d %d %d %d %d', mine.seq, mine.minute, mine.units, mine.spent, mine.day))
-- A day longer than needed, so that a clock that steps back finds its books.
redis.call('PEXPIREAT', KEYS[1], string.format('%d', (day_of(minute) + 2) * MINUTES_PER_DAY * 60000))
return { granted, now, minute, minute_charged, day_charged, mine.units, mine.day, nodes, held_elsewhere,
  learning and until_ or -1, bucket_incarnation }
