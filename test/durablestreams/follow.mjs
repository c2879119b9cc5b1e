// Prints the events of a stream until it is closed, one on each line. A connection that fails is made again at the offset of the
// last batch, as an application does that has stored it.
import { stream } from "@durable-streams/client"

const live = process.env.LIVE
let offset = "-1"
let closed = false
let failures = 0
while (!closed) {
  try {
    const res = await stream({ url: process.env.STREAM_URL, offset, live, backoffOptions: { initialDelay: 10, maxDelay: 100 } })
    res.subscribeJson((batch) => {
      for (const event of batch.items) process.stdout.write(JSON.stringify(event) + "\n")
      offset = batch.offset
      closed = batch.streamClosed
    })
    await res.closed
    closed ||= res.streamClosed
  } catch (err) {
    failures++
    if (failures > 10_000) throw err
  }
}
process.stderr.write(`${failures} failures\n`)
