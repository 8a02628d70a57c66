-- GetTask over a list of task ids, one after the other.
-- Arguments after `--`: the body template, and the file with one id a line.
local slot = "00000000-0000-4000-8000-000000000000"
local requests = {}
local sent = 0

function init(args)
  local file = assert(io.open(args[1], "rb"))
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["A2A-Version"] = "1.0"
  wrk.body = file:read("*a")
  file:close()
  local whole = wrk.format()
  local at = assert(whole:find(slot, 1, true), "the body has no place for an id")
  for id in io.lines(args[2]) do
    requests[#requests + 1] = whole:sub(1, at - 1) .. id .. whole:sub(at + #slot)
  end
end

function request()
  sent = sent % #requests + 1
  return requests[sent]
end

function done(summary, latency)
  io.write(string.format('{"requests":%d,"seconds":%f,"errors":%d,"p50_s":%f,"p99_s":%f,"max_s":%f}\n',
    summary.requests, summary.duration / 1e6,
    summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
    latency:percentile(50) / 1e6, latency:percentile(99) / 1e6, latency.max / 1e6))
end
