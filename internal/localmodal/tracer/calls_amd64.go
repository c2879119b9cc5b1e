package tracer

import "golang.org/x/sys/unix"

// call describes how a system call is handled. Arguments are given by position.
type call struct {
	paths   []pathArgument
	special func(t *Tracer, k *task, c *stop) outcome // instead of paths
}

// pathArgument is a path argument of a call.
type pathArgument struct {
	path     int
	dir      int // argument with the starting directory; none for the current one
	follow   bool
	flags    int    // argument with the flag that inverts follow; none if there is none
	flag     uint64 // that flag
	changes  bool   // the call creates, removes or changes the file
	modeArg  int    // argument with the mode of access(2); none if there is none
	contents bool   // only the contents are changed
}

const none = -1

func at(dir, path int) pathArgument {
	return pathArgument{path: path, dir: dir, flags: none, modeArg: none}
}
func current(path int) pathArgument              { return at(none, path) }
func (p pathArgument) followed() pathArgument    { p.follow = true; return p }
func (p pathArgument) changed() pathArgument     { p.changes = true; return p }
func (p pathArgument) written() pathArgument     { p.changes, p.contents = true, true; return p }
func (p pathArgument) mode(arg int) pathArgument { p.modeArg = arg; return p }
func (p pathArgument) turned(arg int, flag uint64) pathArgument {
	p.flags, p.flag = arg, flag
	return p
}

func on(paths ...pathArgument) call { return call{paths: paths} }

// calls are the system calls with paths, by number.
var calls map[uint64]call

func init() { // the handlers reach the table through the tracer
	const noFollow, yesFollow = unix.AT_SYMLINK_NOFOLLOW, unix.AT_SYMLINK_FOLLOW
	calls = map[uint64]call{
		unix.SYS_OPEN:    {special: (*Tracer).open},
		unix.SYS_CREAT:   {special: (*Tracer).open},
		unix.SYS_OPENAT:  {special: (*Tracer).open},
		unix.SYS_OPENAT2: {special: (*Tracer).open},

		unix.SYS_EXECVE:   {special: (*Tracer).exec},
		unix.SYS_EXECVEAT: {special: (*Tracer).exec},

		unix.SYS_GETCWD:     {special: (*Tracer).getcwd},
		unix.SYS_READLINK:   {special: (*Tracer).readlink},
		unix.SYS_READLINKAT: {special: (*Tracer).readlink},
		unix.SYS_BIND:       {special: (*Tracer).address},
		unix.SYS_CONNECT:    {special: (*Tracer).address},
		unix.SYS_SENDTO:     {special: (*Tracer).address},

		unix.SYS_STAT:       on(current(0).followed()),
		unix.SYS_LSTAT:      on(current(0)),
		unix.SYS_NEWFSTATAT: on(at(0, 1).followed().turned(3, noFollow)),
		unix.SYS_STATX:      on(at(0, 1).followed().turned(2, noFollow)),
		unix.SYS_STATFS:     on(current(0).followed()),
		unix.SYS_ACCESS:     on(current(0).followed().mode(1)),
		unix.SYS_FACCESSAT:  on(at(0, 1).followed().mode(2)),
		unix.SYS_FACCESSAT2: on(at(0, 1).followed().turned(3, noFollow).mode(2)),
		unix.SYS_CHDIR:      on(current(0).followed()),

		unix.SYS_MKDIR:     on(current(0).changed()),
		unix.SYS_MKDIRAT:   on(at(0, 1).changed()),
		unix.SYS_MKNOD:     on(current(0).changed()),
		unix.SYS_MKNODAT:   on(at(0, 1).changed()),
		unix.SYS_RMDIR:     on(current(0).changed()),
		unix.SYS_UNLINK:    on(current(0).changed()),
		unix.SYS_UNLINKAT:  on(at(0, 1).changed()),
		unix.SYS_RENAME:    on(current(0).changed(), current(1).changed()),
		unix.SYS_RENAMEAT:  on(at(0, 1).changed(), at(2, 3).changed()),
		unix.SYS_RENAMEAT2: on(at(0, 1).changed(), at(2, 3).changed()),
		unix.SYS_LINK:      on(current(0).changed(), current(1).changed()),
		unix.SYS_LINKAT:    on(at(0, 1).changed().turned(4, yesFollow), at(2, 3).changed()),
		unix.SYS_SYMLINK:   on(current(1).changed()),
		unix.SYS_SYMLINKAT: on(at(1, 2).changed()),

		unix.SYS_CHMOD:     on(current(0).followed().changed()),
		unix.SYS_FCHMODAT:  on(at(0, 1).followed().changed()),
		unix.SYS_FCHMODAT2: on(at(0, 1).followed().changed().turned(3, noFollow)),
		unix.SYS_CHOWN:     on(current(0).followed().changed()),
		unix.SYS_LCHOWN:    on(current(0).changed()),
		unix.SYS_FCHOWNAT:  on(at(0, 1).followed().changed().turned(4, noFollow)),
		unix.SYS_UTIME:     on(current(0).followed().changed()),
		unix.SYS_UTIMES:    on(current(0).followed().changed()),
		unix.SYS_FUTIMESAT: on(at(0, 1).followed().changed()),
		unix.SYS_UTIMENSAT: on(at(0, 1).followed().changed().turned(3, noFollow)),
		unix.SYS_TRUNCATE:  on(current(0).followed().written()),

		unix.SYS_GETXATTR:     on(current(0).followed()),
		unix.SYS_LGETXATTR:    on(current(0)),
		unix.SYS_LISTXATTR:    on(current(0).followed()),
		unix.SYS_LLISTXATTR:   on(current(0)),
		unix.SYS_SETXATTR:     on(current(0).followed().changed()),
		unix.SYS_LSETXATTR:    on(current(0).changed()),
		unix.SYS_REMOVEXATTR:  on(current(0).followed().changed()),
		unix.SYS_LREMOVEXATTR: on(current(0).changed()),

		unix.SYS_INOTIFY_ADD_WATCH: on(current(1).followed().turned(2, unix.IN_DONT_FOLLOW)),
		unix.SYS_NAME_TO_HANDLE_AT: on(at(0, 1).turned(4, yesFollow)),
	}
}
