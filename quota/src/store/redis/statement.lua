-- Executes one statement about one bucket: the same steps in the same order as `Bucket::apply` in ledger/bucket.rs; its
-- comments give the reasons. A test runs random statements through both and compares.
--
-- A statement reads and writes two fields, however many places the bucket has; only a new place in a full bucket reads all.
--
-- KEYS[1]  the bucket, a hash: one field per place = "start stay process seq minute minute_units minute_spent day_units",
--          and "record" = "minute minute_charged day_charged incarnation learning_until nodes held places evicted crowded":
--          the number of places with statements in the minute and the units they hold, the number of places, whether one
--          was evicted today (0 or 1), and for how many minutes the search for a silent one would fail
-- ARGV     1 place, 2 seq, 3 acked, 4 claimed minute (-1: none), 5 minute spent, 6 day spent, 7 held, 8 need, 9 spare,
--          10 limit of the minute, 11 limit of the day, 12 the latest minute named to the node (-1: none), 13 start, 14 stay,
--          15 process, 16 the key that remembers this server's memory, 17 the server's run id, 18 a random number; for a slot
--          that is being moved to this server: 16 empty, 17 the incarnation
-- Answers  {granted, now, minute, minute charged, day charged, own minute, own day, nodes, held elsewhere,
--          learning until (-1: not learning), incarnation}, {} for a stale statement, {-1} for a displaced one, {-2} for an
--          evicted one, {-3} for a crowded one. All numbers stay below 2^53.
local MINUTES_PER_DAY, STEP_BACK_MAX, LEARNING = 1440, 15, 250
local PLACES_MAX, SILENT_MINUTES, EVICTED_AT_ONCE = 1024, 2, 64
-- The learning period of new data: nodes reconnect one after the other, within a quarter of a second of each other.
local LEARNING_ANEW = 500
local floor, max, min = math.floor, math.max, math.min
local place = ARGV[1]
local seq, acked = tonumber(ARGV[2]), tonumber(ARGV[3])
local claim_minute, claim_minute_spent, claim_day_spent = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local held, need, spare = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local limit_minute, limit_day, named = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local start, stay, process = tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
local now_minute = floor(now / 60000)

local function day_of(minute) return floor(minute / MINUTES_PER_DAY) end

local function numbers(text)
  local all = {}
  for number in string.gmatch(text, '%-?%d+') do all[#all + 1] = tonumber(number) end
  return all
end

-- The incarnation of the server's data: a restarted server may have lost writes, and an emptied one has lost this key.
local moving = ARGV[16] == ''
local memory = moving and { ARGV[17], ARGV[17], 0 } or redis.call('HMGET', ARGV[16], 'incarnation', 'run', 'since')
local incarnation, since = tonumber(memory[1]), tonumber(memory[3])
if not incarnation or memory[2] ~= ARGV[17] then
  incarnation, since = now * 1000 + tonumber(ARGV[18]) % 1000, now
  redis.call('HSET', ARGV[16], 'incarnation', string.format('%d', incarnation), 'run', ARGV[17], 'since', string.format('%d', since))
end

-- A clock that stepped back must not turn half a second into an hour.
if since > now then
  since = now
  redis.call('HSET', ARGV[16], 'since', string.format('%d', since))
end

-- In a slot that is being moved here, a record that is missing may be lost: no key tells when the data began.
local unrecorded = moving and -1 or incarnation
local minute, minute_charged, day_charged, bucket_incarnation, learning_until = now_minute, 0, 0, unrecorded, 0
local nodes, held_by_all, places, evicted, crowded_until = 0, 0, 0, 0, 0
local fields = redis.call('HMGET', KEYS[1], 'record', place)
if fields[1] then
  local record = numbers(fields[1])
  minute, minute_charged, day_charged, bucket_incarnation, learning_until = record[1], record[2], record[3], record[4], record[5]
  nodes, held_by_all, places, evicted, crowded_until = record[6], record[7], record[8], record[9], record[1] + record[10]
end

local known
if fields[2] then
  local one = numbers(fields[2])
  known = { start = one[1], stay = one[2], process = one[3], seq = one[4], minute = one[5], units = one[6], spent = one[7], day = one[8] }
  if process ~= known.process and start <= known.start then return { -1 } end
  if start < known.start or start == known.start and (stay < known.stay or stay == known.stay and seq <= known.seq) then return {} end
elseif evicted == 1 and acked > 0 and claim_minute >= 0 and day_of(claim_minute) == day_of(minute)
  and bucket_incarnation == incarnation and max(learning_until, since + LEARNING_ANEW) <= now then
  return { -2 }
end

local cleared = false
local function enter(other)
  if other == minute then return end
  if day_of(other) ~= day_of(minute) then
    day_charged, places, evicted, crowded_until, known, cleared = 0, 0, 0, 0, nil, true
  end
  minute, minute_charged, nodes, held_by_all = other, 0, 0, 0
end

if minute < now_minute or minute > now_minute + STEP_BACK_MAX then enter(now_minute) end
if named >= minute and named <= now_minute + STEP_BACK_MAX then enter(named) end

local function save(...)
  if cleared then redis.call('DEL', KEYS[1]) end
  redis.call('HSET', KEYS[1], 'record', string.format('%d %d %d %d %d %d %d %d %d %d', minute, minute_charged, day_charged,
    bucket_incarnation, learning_until > now and learning_until or 0, nodes, held_by_all, places, evicted,
    max(crowded_until - minute, 0)), ...)
  -- A day longer than needed, so that a clock that steps back finds its record.
  redis.call('PEXPIREAT', KEYS[1], string.format('%d', (day_of(minute) + 2) * MINUTES_PER_DAY * 60000))
end

if not known and places >= PLACES_MAX then
  local silent, oldest = {}, minute
  if minute >= crowded_until then
    local all = redis.call('HGETALL', KEYS[1])
    for at = 1, #all, 2 do
      if all[at] ~= 'record' then
        local spoke = numbers(all[at + 1])[5]
        oldest = min(oldest, spoke)
        if spoke < minute - SILENT_MINUTES then silent[#silent + 1] = { name = all[at], minute = spoke } end
      end
    end
    crowded_until = #silent == 0 and oldest + SILENT_MINUTES + 1 or crowded_until
  end
  if #silent == 0 then
    save()
    return { -3 }
  end
  table.sort(silent, function(one, other)
    return one.minute < other.minute or one.minute == other.minute and one.name < other.name
  end)
  for at = 1, min(#silent, EVICTED_AT_ONCE) do
    redis.call('HDEL', KEYS[1], silent[at].name)
    places = places - 1
  end
  evicted = 1
end

-- The charges of an earlier generation of the place stay: none of its units is known to be unspent. `spoke` tells whether the place
-- was counted in this minute.
local spoke, held_before = known and known.minute == minute, 0
if spoke then held_before = max(known.units - known.spent, 0) end
local mine = known
if not mine then places = places + 1 end
if not mine or mine.start ~= start or mine.stay ~= stay or mine.process ~= process then
  mine = { seq = 0, minute = minute, units = 0, spent = 0, day = 0 }
end
if mine.minute ~= minute then mine.minute, mine.units, mine.spent = minute, 0, 0 end

-- A minute that has not begun here, named only by the node: its component stays, nothing is granted.
if claim_minute > minute then
  held = max(mine.units - mine.spent, 0)
  claim_minute, claim_minute_spent, claim_day_spent, need, spare = minute, mine.spent, max(mine.day - held, 0), 0, 0
end

local same_minute, same_day = claim_minute == minute, claim_minute >= 0 and day_of(claim_minute) == day_of(minute)
local claim_minute_units, claim_day_units = claim_minute_spent + held, claim_day_spent + held
local forgotten = same_day and (claim_day_units > mine.day or acked > mine.seq or (same_minute and claim_minute_units > mine.units))
if bucket_incarnation ~= incarnation or forgotten then
  bucket_incarnation, learning_until = incarnation, now + LEARNING
end
learning_until = min(learning_until, now + LEARNING)
local until_ = min(max(learning_until, since + LEARNING_ANEW), now + LEARNING)
local learning = until_ > now

local minute_units, day_units = same_minute and claim_minute_units or 0, same_day and claim_day_units or 0
minute_charged = max(minute_charged - mine.units, 0) + minute_units
day_charged = max(day_charged - mine.day, 0) + day_units
mine.units, mine.spent, mine.day, mine.seq = minute_units, max(minute_units - held, 0), day_units, seq

if not spoke then nodes = nodes + 1 end
local held_elsewhere = held_by_all - held_before

local granted = 0
if not learning then
  local room = min(max(limit_minute - minute_charged, 0), max(limit_day - day_charged, 0))
  granted = min(need, room)
  granted = granted + min(spare, floor((room - granted) / max(nodes * 2, 2)))
end
minute_charged, day_charged = minute_charged + granted, day_charged + granted
mine.units, mine.day = mine.units + granted, mine.day + granted
held_by_all = held_elsewhere + max(mine.units - mine.spent, 0)

save(place, string.format('%d %d %d %d %d %d %d %d', start, stay, process, mine.seq, mine.minute, mine.units, mine.spent, mine.day))
return { granted, now, minute, minute_charged, day_charged, mine.units, mine.day, nodes, held_elsewhere,
  learning and until_ or -1, bucket_incarnation }
