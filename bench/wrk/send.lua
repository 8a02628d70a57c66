-- SendMessage with a new message id (a UUID) in every request: an id sent twice would be answered from memory.
-- Arguments after `--`: the body template, a seed for the ids of this run, and the version of A2A ("none": no header).
local slot = "00000000-0000-4000-8000-000000000000"
local before, after, seed
local sent = 0

function init(args)
  local file = assert(io.open(args[1], "rb"))
  local body = file:read("*a")
  file:close()
  local at = assert(body:find(slot, 1, true), "the body has no place for an id")
  before = body:sub(1, at - 1)
  after = body:sub(at + #slot)
  seed = args[2]
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  if args[3] ~= "none" then wrk.headers["A2A-Version"] = args[3] end
  -- The request head never changes: it is written once, and only the id is put between the two halves.
  wrk.body = before .. slot .. after
  local whole = wrk.format()
  local cut = assert(whole:find(slot, 1, true))
  before, after = whole:sub(1, cut - 1), whole:sub(cut + #slot)
end

function request()
  sent = sent + 1
  return string.format("%s%s-0000-4000-8000-%012x%s", before, seed, sent, after)
end

function done(summary, latency)
  io.write(string.format('{"requests":%d,"seconds":%f,"errors":%d,"p50_s":%f,"p99_s":%f,"max_s":%f}\n',
    summary.requests, summary.duration / 1e6,
    summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
    latency:percentile(50) / 1e6, latency:percentile(99) / 1e6, latency.max / 1e6))
end
