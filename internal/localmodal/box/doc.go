// Package box runs sandboxes as local processes, at a level of isolation that Open
// tests by starting a box.
//
//	level        root                        processes                       requirements
//	namespaces   overlay, or a copy, in a    PID namespace: hidden, and      user namespaces (with overlayfs
//	             mount namespace             killed by the kernel            in them for the overlay)
//	chroot       a copy, in a mount          the machine's, visible;         root that may mount, or a user
//	             namespace                   init ends its family            namespace; no PID namespace
//	directory    a copy, shown to its        the machine's, visible;         ptrace and seccomp on its own
//	             processes by a tracer       traced, and killed by the       children; no privilege (amd64)
//	                                         kernel with their tracer
//
// Isolation.Lacks lists the abilities that a level lacks; a request that needs one of these fails
// with a *LackError. All levels show the machine's programs and none of its other files (for the
// level directory see package tracer). No sandbox changes them, although it may change its own
// view. The levels do not pass on the machine's environment. They create the same images, each of
// which starts on any level.
//
// If the server runs as root, the users of a sandbox are ids that belong to no user of the machine,
// and own the files in layers and boxes (idRange). Init has its root in a user namespace that maps
// these ids; the processes that it starts are in a second one below, in which the kernel has locked
// the mounts. In this case init cannot enter DIR: the server creates the mounts that it needs and
// passes them to it.
//
//	DIR/layers/base        made from this machine at every start (HostBase)
//	DIR/layers/ly-…        changes of one snapshot: files, whiteouts, opaque directories
//	DIR/boxes/ID/upper     of an overlay: changes of the sandbox ID since it started
//	DIR/boxes/ID/changes   of an overlay: its changes to the machine's programs; part of its layers as usr, opt, …
//	DIR/boxes/ID/tree      or its copied root,
//	DIR/boxes/ID/start     and the state of that at the start
//	DIR/building/…         unfinished layers
//	DIR/trash/…            trees that are being deleted
//
//	   upper ──copy while frozen──▶ layer ──lower of──▶ the next sandbox's overlay
//	   upper ──rename when dead───▶ layer ──copied to─▶ the next sandbox's tree
//	   tree ───differences from start, copied─────▶ layer
//
// Invariants:
//
//   - A layer under its final name is complete, synced to disk and never written
//     again; one rename publishes it.
//   - A regular file may be shared between layers by hard links, never between a
//     box and a layer. Copied roots share the symbolic links of the base.
//   - A snapshot reads only the box's own files: it opens each once, without following
//     links, and then inspects and copies the opened file.
//   - If the server runs as root, no file of a sandbox belongs to an id of a user of the
//     machine, and a file's capabilities are only valid in its sandbox's user namespace.
//   - All mounts are made inside the sandbox's mount namespace: they disappear with
//     its last process, and nothing on the host has to be unmounted.
//   - No process of a box outlives this process. In a PID namespace and under a tracer
//     the kernel ensures that, by the parent-death signal of init. Without either, init,
//     the subreaper of its descendants, ends them when its control socket closes. If
//     init itself was killed, its descendants are found by their root directory,
//     immediately or by the next Open.
//
// Failures:
//
//	this process is killed        no process survives; boxes' files stay and are claimed or removed at the next start
//	killed during a snapshot      an unfinished tree stays in building, deleted at the next start
//	a process does not stop       the snapshot fails after 15 seconds, everything keeps running
//	disk full during a snapshot   the snapshot fails, everything keeps running
//	init dies                     Box.Gone is closed, every Process ends with SIGKILL
//	a level stops working         the next Open selects another one, or fails if this one was requested
package box
