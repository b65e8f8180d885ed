-- Add an entry to a stream, under the hour by the store's clock: no id, and so nothing that Redis writes to disk, is finer.
-- If the clock was set back, the stream has later ids. Then a star continues after its last one, which also has an hour.
-- `...` stands between the key and the id.
local function enter(key, now, fields, ...)
  local command = {'XADD', key, ...}
  local at = #command + 1
  command[at] = string.format('%.0f-*', math.floor(now / 3600) * 3600000)
  for i = 1, #fields do
    command[at + i] = fields[i]
  end
  if type(redis.pcall(unpack(command))) == 'table' then
    command[at] = '*'
    redis.call(unpack(command))
  end
end
