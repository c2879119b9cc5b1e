// Package runner defines the protocol between a worker and the runner in a sandbox, and implements
// the worker's end. Package server is the runner, package command contains the commands that a
// worker executes to reach it, and cmd/overwinter-runner is the program that contains both.
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
// A link uses an exec of `attach`: messages to the runner go through its stdin, messages from the
// runner through its stdout. It serves one run. There is one link at a time: a newer one displaces
// it, and the displaced exec exits with ExitDisplaced. A worker may detach its link and begin
// another over the same exec, for any run. While detached, the exec has no connection to the
// runner, and it exits by itself after MaxDetached. Meanwhile it executes the commands seal and
// verify, which then need no exec. Operations that need no link are commands, each a separate exec
// with a request on stdin and a JSON response on stdout: ping, abort, seal, verify, put. Prompts,
// secrets, the token and aborts are never in argv.
//
// Attach passes its stdout to the runner over the socket, together with hello. The runner then
// writes the messages of the link to it directly, so that a line of the agent wakes one process of
// the sandbox rather than two. The connection carries the worker's messages, the requests for diffs
// of the workspace, which attach takes, and the last message of the link, which determines attach's
// exit code. The runner detaches a link after the message that it is writing. If stdout is neither
// a pipe nor a socket, it is not passed on, and a runner of an earlier release ignores it: in both
// cases attach copies the messages.
//
// Every connection to the socket presents the token whose SHA-256 was passed to the runner at its
// start. The socket belongs to the runner's user and accepts connections only of that user and
// root.
//
// # Messages
//
// A message is its type (1 byte), the length of its payload (4 bytes, big endian, at most
// maxMessage) and the payload. Payloads are JSON, except for these four with bulk data:
//
//	input    bytes for the agent's stdin
//	frame    number (8) time in Unix nanoseconds (8) stream (1) flags (1) data
//	segment  length of path (2) path version (8) offset (8) data
//	changed  length of the description (4) description in JSON, content
//
// A link begins with hello; the answer is welcome or error. Then, to the runner:
//
//	start      deliver the run's prompt; start the agent if necessary
//	input      more bytes for the agent's stdin: answers to its questions
//	steer      a prompt for the running turn: input that is written once per run
//	interrupt  abort the turn; processes that run after the grace period are killed
//	settle     the turn has ended: cancel the kill that an interrupt scheduled
//	flush      send the current transcript files and workspace, then flushed
//	known      the stored files, if the welcome has requested them
//	answer     the answer to a call of a tool
//	taken      number of the first unhandled frame, and how many frames the agent may print from there
//	detach     end the link and keep the exec for another hello; attach itself answers
//	command    seal or verify the sandbox; only while no link is open; attach itself answers, with the
//	           messages of a seal, if it is one, and a result
//
// and from it:
//
//	delivery   the state of the prompt's delivery, after start and at every change
//	frame      the next record of the run's journal
//	segment    bytes of a transcript file that the worker does not have
//	begun      a lineage of workspace changes has begun
//	changed    a file of the workspace was created, changed or deleted
//	bounded    the workspace has more files than are tracked
//	diff       difference between the workspace and the session's beginning
//	flushed    all data that was on disk at the flush has been sent
//	detached   the link has ended as requested; the last message
//	alive      no other message; sent every AliveInterval
//	displaced  a newer link has displaced this one; the last message
//	error      the link ends for this reason; the last message
//
// # Frames
//
// A frame is one line of the agent without its newline. A line longer than MaxLine is truncated and
// flagged, and a last line without a newline is flagged too. Frames are numbered from 0, without
// gaps, per run. They are in the journal before they are sent, so a link that attaches with the
// number of the next frame it needs gets every frame once. Output of the agent after its turn
// belongs to the same run until the next run starts.
//
// # Windows
//
// A hello may have a window: the number of frames by which the agent may be ahead of the worker. At
// the end of the window the runner stops reading the agent's stdout, so that the agent blocks in a
// write once its pipe is full. taken moves the window. An agent that prints faster than its worker
// can store is thereby slowed down to the worker's speed and uses no further resources.
//
// Nothing else is delayed: stderr, calls, exit frames, stdin, interrupts, transcripts and files.
// The agent does not wait if there is no link, if the worker has taken nothing for 20 s, if its
// turn has ended or was interrupted, or when it is being stopped. In these cases, and for a worker
// of an earlier release, which has no window, the runner writes the journal independently of its
// readers, and a slow worker slows only its own link.
//
// When the agent's process exits, its exit frame is the last frame of that process; all its
// descendants are dead by then. A process that cannot be started gives an exit frame with code 127
// and the reason in its stderr.
//
// # Calls
//
// The agent may call overwinter's tools. Its MCP server (the command tools) passes each call to the
// runner over another socket, without a token: any program in the sandbox may call. A call is a
// frame of the open run, in the stream call, so a worker executes it once, when it commits the
// frame, and answers it over the link. The welcome lists the frames of waiting calls, for a worker
// that takes over after the commit and before the answer. If the hello of a link does not announce
// that its worker answers calls, the runner sends them as lines of stderr and answers them itself.
//
//	agent ──MCP──▶ tools ──unix socket──▶ serve ──frame──▶ worker ──commit
//	      ◀───────       ◀─────────────         ◀─answer──
//
// When the turn has ended, or another run begins, waiting calls get an error. Without an open turn,
// calls are refused.
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
// delivering is in the journal before the first byte is written to the agent, and delivered after
// the last. A start for a run that has a journal delivers nothing and only reports its state. A run
// that was open when the runner died is cut: only the frames in the journal show whether the agent
// had the prompt, and how far it got; no more frames follow. So cut without the end of a turn in
// its frames is an unknown outcome. Only a live runner reports delivering: wait for the delivery
// message or the exit frame that follows.
//
// The frames of a run are kept until sixteen newer runs have begun. After that, only a line in a file
// remains, which says that the run was delivered, or cut, and is not open.
//
// # One agent, many runs
//
// The agent's process serves one prompt after the other on one stdin. If the launch of a start
// differs from that of the running process (see Launch.Key), that process is stopped first; its
// exit frame belongs to the previous run.
//
// # Transcripts
//
// While a link is live, the runner follows the agent's own files and sends the bytes after the
// positions that hello reported as stored. A file that was rewritten rather than appended to gets
// the next version and is sent from its beginning.
//
// # Workspace
//
// A link whose hello has a position in the workspace's history receives the changes of its files,
// with their content within the bounds of package session, and before each answer to a flush the
// workspace's difference from the session's beginning. Changes are numbered; those after the
// position of the next hello are sent again. If the runner cannot continue from a position, as in a
// fresh or restored sandbox, the welcome asks for the files that are stored and the difference
// begins a new lineage. A prompt is delivered once the runner knows the state of the workspace
// before it. Package workspace describes which files are tracked and how.
//
// While a link is live, inotify triggers the runner's passes over the workspace. If the file system
// reports no events or the kernel's watches are exhausted, the workspace is polled, and ping
// reports which. A burst of changes is followed by one pass, and a pass by a pause of fifty times
// its duration. A file that keeps changing is reported less and less often until the flush. Without
// a link nothing is done.
//
// # Durability
//
// Records of the journal are in the file system at once, where the sandbox's next runner finds
// them. They are synced to disk within five seconds (fsync by timer), and a seal syncs all of them.
// No prompt waits for the disk: the disk is lost with its sandbox, and the sandbox with its
// machine, so a stricter rule would have no benefit.
//
//	failure                      result
//	the worker dies              the journal grows; the next link attaches at its frame
//	the agent exits              exit frame; the next start launches it again
//	the agent does not read      delivery stays delivering; an interrupt kills the agent after its grace
//	the runner dies              its sandbox ends with it; the agent is killed in any case,
//	                             and the next serve marks the open run cut
//	the workspace cannot be read no changes are reported; the turn continues
//	a torn record                truncated when the journal is opened again
//	the disk is full             the link ends with journal_failed, the agent is killed
//	snapshot without a seal      the same as if the runner had died
package runner
