// Package box runs sandboxes as local processes, at a level of isolation that Open
// tries out by starting a box.
//
//	level        root                        processes                       what it takes
//	namespaces   overlay, or a copy, in a    PID namespace: hidden, and      user namespaces (with overlayfs
//	             mount namespace             killed by the kernel            in them for the overlay)
//	chroot       a copy, in a mount          the machine's, visible;         root that may mount, or a user
//	             namespace                   init ends its family            namespace; no PID namespace
//	directory    a copy, shown to its        the machine's, visible;         ptrace and seccomp on one's own
//	             processes by a tracer       traced, and killed by the       children; no privilege (amd64)
//	                                         kernel with their tracer
//
// Isolation.Lacks lists what a level cannot do; a request for it is a *LackError. All levels show
// the machine's programs and none of its other files (package tracer says more about the last one);
// no sandbox changes them, although it may change its own view. They do not pass on the machine's
// environment, and make the same images, each of which starts on any level.
//
// If the server is root, the users of a sandbox are ids that belong to no user of the machine, and
// files in layers and boxes belong to those (idRange). Init has its root in a user namespace that
// maps them; what it runs is in a second one below, in which the kernel has locked the mounts. Init
// may not enter DIR then: the mounts it needs are made by the server and handed to it.
//
//	DIR/layers/base        made from this machine at every start (HostBase)
//	DIR/layers/ly-…        one snapshot's changes: files, whiteouts, opaque directories
//	DIR/boxes/ID/upper     of an overlay: what the sandbox ID has changed since it started
//	DIR/boxes/ID/changes   of an overlay: what it has changed in the machine's programs; part of its layers as usr, opt, …
//	DIR/boxes/ID/tree      or its copied root,
//	DIR/boxes/ID/start     and what that was when it started
//	DIR/building/…         layers in the making
//	DIR/trash/…            trees on their way out
//
//	   upper ──copy while frozen──▶ layer ──lower of──▶ the next sandbox's overlay
//	   upper ──rename when dead───▶ layer ──copied to─▶ the next sandbox's tree
//	   tree ───what differs from start, copied────▶ layer
//
// Invariants:
//
//   - A layer is complete, synced to disk and never written again once it has its
//     final name; it appears there by one rename.
//   - A regular file may be shared between layers by hard links, never between a
//     box and a layer. Copied roots share the symbolic links of the base.
//   - A snapshot reads nothing but the box's own files: each is opened once, without
//     following a link, and what was opened is what is looked at and copied.
//   - With root's server, no file of a sandbox belongs to an id that means anything on
//     the machine, and a file's capabilities count in its sandbox's user namespace only.
//   - Whatever is mounted is mounted inside the sandbox's mount namespace alone: it
//     goes with the last process in it, and nothing on the host has to be unmounted.
//   - No process of a box outlives this process. In a PID namespace and under a
//     tracer it is the kernel that sees to it, by the parent-death signal of init.
//     Without either, init ends its descendants, whom it is the subreaper of, when its
//     control socket ends; what an init that was itself killed leaves is found by its
//     root directory, at once, or at the next Open.
//
// When things fail:
//
//	this process is killed        no process is left; boxes' files stay and are claimed or removed at the next start
//	killed during a snapshot      an unfinished tree stays in building, deleted at the next start
//	a process will not stop       the snapshot fails after five seconds, everything runs on
//	disk full during a snapshot   the snapshot fails, everything runs on
//	init dies                     Box.Gone is closed, every Process ends with SIGKILL
//	a level stops to work         with the next Open another is taken, or it fails if one was asked for
package box
