// Package runner is the protocol between a worker and the runner in a sandbox,
// and the worker's end of it. The runner is package server, the commands that a
// worker executes to reach it are package command, and cmd/overwinter-runner is
// the program that has both.
//
// The runner translates nothing. It starts the agent, numbers each line of its
// output, keeps the lines in a journal on disk, and sends them to the attached
// worker.
//
//	worker ──exec──▶ attach ──unix socket──▶ serve ──stdin──▶ agent
//	       ◀─stdout─        ◀───────────────   │   ◀─stdout──
//	                                        journal
//
// # Links and commands
//
// A link goes through an exec of `attach`: its stdin carries messages to the runner, its stdout
// messages from it. It serves one run. There is one link at a time: a newer one displaces it, and
// the displaced exec ends with ExitDisplaced. A worker may detach its link and begin another over
// the same exec, of whatever run; meanwhile the exec holds no connection to the runner, and ends by
// itself after MaxDetached. What needs no link is a command, a separate exec whose request goes in
// by stdin and whose response comes out as JSON: ping, abort, seal, verify, put. Prompts, secrets,
// the token and aborts are never in argv.
//
// Attach passes its stdout to the runner over the socket, together with hello. The runner then writes
// the messages of the link there itself, so that a line of the agent wakes one process of the sandbox
// rather than two. The connection carries the worker's messages, the requests for diffs of the
// workspace, which attach takes, and the last message of the link, which gives attach its exit code.
// The runner detaches a link after the message that it is writing. A stdout that is neither a pipe nor
// a socket is not passed on, and a runner of an earlier release does not take it: attach then copies
// the messages.
//
// Every connection to the socket presents the token whose SHA-256 the runner was
// started with. The socket belongs to the runner's user and takes connections
// of that user and of root alone.
//
// # Messages
//
// A message is its type (1 byte), the length of its payload (4 bytes, big
// endian, at most maxMessage) and the payload. Payloads are JSON but for the
// four that carry bulk:
//
//	input    the bytes for the agent's stdin
//	frame    number (8) time in Unix nanoseconds (8) stream (1) flags (1) data
//	segment  length of path (2) path version (8) offset (8) data
//	changed  length of the description (4) description in JSON, content
//
// A link begins with hello; the answer is welcome or error. Then, to the runner:
//
//	start      deliver the run's prompt, starting the agent if need be
//	input      more bytes for the agent's stdin: answers to its questions
//	steer      a prompt for the running turn: input that is written once in a run
//	interrupt  abort the turn; processes that run after the grace period are killed
//	settle     the turn has ended: cancel the kill that an interrupt scheduled
//	flush      send the current transcript files and workspace, then flushed
//	known      the files that are stored, where the welcome has asked for them
//	answer     the answer to a call of a tool
//	taken      the frames that the worker has handled, and how many more the agent may print
//	detach     the link ends, its exec waits for another hello; attach itself answers
//
// and from it:
//
//	delivery   the state of the prompt's delivery, after start and at every change
//	frame      the next record of the run's journal
//	segment    bytes of a transcript file that the worker does not have
//	begun      a lineage of changes in the workspace has begun
//	changed    a file of the workspace was created, changed or deleted
//	bounded    the workspace has more files than are watched
//	diff       how the workspace differs from the session's beginning
//	flushed    all data that was on disk at the flush has been sent
//	detached   the link has ended as asked; the last message
//	alive      no other message; sent every AliveInterval
//	displaced  a newer link has taken over; the last message
//	error      the link ends for this reason; the last message
//
// # Frames
//
// A frame is one line of the agent without its newline. Lines longer than
// MaxLine are cut there and flagged, as is a last line that has no newline.
// Frames count from 0 and are contiguous per run. They are in the journal
// before they are sent, so a link that attaches with the number it wants next
// gets every frame once. What the agent prints after its turn belongs to the
// same run until the next run starts.
//
// # Windows
//
// A hello may have a window: the number of frames that the agent may be ahead of what the worker has handled. At the end of the window the
// runner reads no more of the agent's stdout, so that the agent waits in its write once its pipe is full. taken moves the window. An agent that
// prints more than its worker can store is thereby as fast as its worker, and costs the machine no more than that.
//
// Nothing else waits: stderr, calls, exit frames, stdin, interrupts, transcripts and files pass. The agent waits for no worker without a link, for
// one that has taken nothing for 20 s, for one whose turn has ended or was interrupted, and at its own end. Then, and for a worker of an earlier release,
// which has no window, the journal is written whether it is read or not, and a slow worker slows only its own link.
//
// When the agent's process ends, its exit frame is the last of that process; all
// its descendants are dead by then. A process that cannot be started gives an
// exit frame with code 127 and the reason in its stderr.
//
// # Calls
//
// The agent may call tools of overwinter. Its server of the Model Context Protocol (the command tools) passes each call to the
// runner over another socket, without a token: whatever runs in the sandbox may call. A call is a frame of the open run, in
// the stream call, so a worker carries it out when it commits the frame, once, and answers it over the link. The welcome names the
// frames of calls that wait, for a worker that takes over after the commit and before the answer. A link whose hello does not
// say that its worker knows calls gets them as lines of stderr, and the runner answers them itself.
//
//	agent ──MCP──▶ tools ──unix socket──▶ serve ──frame──▶ worker ──commit
//	      ◀───────       ◀─────────────         ◀─answer──
//
// When the turn has ended, or another run begins, calls that wait get an error; without an open turn there are no calls.
//
// # Delivery
//
// A prompt is written to the agent at most once per journal:
//
//	not_started ─▶ delivering ─▶ delivered
//	                    └────┬───────┘
//	                         ▼
//	                        cut
//
// delivering is in the journal before the first byte goes to the agent, and delivered after the
// last. A start for a run that has a journal delivers nothing and only reports where it stands. A
// run that was open when the runner died is cut: only the frames in the journal show whether the
// agent had the prompt, and what it did; no more will come. So cut without the end of a turn in its
// frames is an unknown outcome. Only a live runner reports delivering: wait for the delivery
// message or the exit frame that follows.
//
// The frames of a run are kept until sixteen newer runs have begun. What is left
// then is that the run was delivered, or cut, and is not open.
//
// # One agent, many runs
//
// The agent's process serves one prompt after the other on one stdin. A start with
// another launch than the running process (see Launch.Key) stops that process
// first; its exit frame belongs to the previous run.
//
// # Transcripts
//
// While a link is live, the runner follows the agent's own files and sends the
// bytes after the positions that hello reported as stored. A file that was
// rewritten rather than appended to gets the next version and is sent whole.
//
// # Workspace
//
// A link whose hello has a position in the workspace's history receives the changes of its files,
// with their content within the bounds of package session, and before each answer to a flush the
// workspace's difference from the session's beginning. Changes are numbered; those after the
// position of the next hello are sent again. If the runner cannot continue from a position, as in a
// fresh or restored sandbox, the welcome asks for the files that are stored and the difference
// begins a new lineage. A prompt is delivered once the runner knows what was there before it.
// Package workspace describes what is seen and how.
//
// While a link lives, inotify triggers the runner's passes over the workspace. If the file system
// gives no events or the kernel's watches are used up, the workspace is polled, and ping says
// which. One pass follows a burst, a pause of fifty times its cost follows the pass, and a file
// that keeps changing is reported ever more rarely until the flush. Without a link nothing is done.
//
// # Durability
//
// Records of the journal are in the file system at once, where the next runner of the
// sandbox finds them. They reach the disk within a second (fsync by timer), and all of
// them at a seal. No prompt waits for the disk: the disk is lost with its sandbox, and
// the sandbox with its machine, so a stricter rule would gain nothing.
//
//	failure                      what follows
//	the worker dies              journal grows; the next link attaches at its frame
//	the agent dies               exit frame; the next start launches it again
//	the agent does not read      delivery stays delivering; interrupt kills after its grace
//	the runner dies              its sandbox ends with it; the agent is killed in any case,
//	                             and the next serve marks the open run cut
//	the workspace cannot be read nothing is reported of it; the turn continues
//	a torn record                truncated when the journal is opened again
//	the disk is full             link ends with journal_failed, the agent is killed
//	snapshot without a seal      as if the runner had died
package runner
