package workspace

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxWatches bounds how many directories are watched. With more watches, the kernel's bookkeeping
// would cost more than polling.
const maxWatches = 8192

const watched = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW

// Watcher wakes its owner when something changes in a workspace. It does not report the change,
// which a pass over the workspace finds.
type Watcher struct {
	file *os.File
	wake chan struct{} // one signal is enough
	arm  chan struct{}
	done sync.WaitGroup
	stop chan struct{}
	once sync.Once

	broken atomic.Bool
}

// NewWatcher fails if inotify is not available.
func NewWatcher() (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &Watcher{
		file: os.NewFile(uintptr(fd), "inotify"), wake: make(chan struct{}, 1), arm: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	w.done.Go(w.run)
	return w, nil
}

// Add watches a directory. It may be called concurrently. Repeating it has no effect. If it fails, the
// watcher is broken, and its owner has to poll.
func (w *Watcher) Add(dir string) {
	if w.broken.Load() {
		return
	}
	wd := -1
	raw, err := w.file.SyscallConn()
	if err == nil {
		cerr := raw.Control(func(fd uintptr) { wd, err = unix.InotifyAddWatch(int(fd), dir, watched) })
		if cerr != nil {
			err = cerr
		}
	}
	switch {
	case err == nil:
		// Descriptors are assigned in ascending order, so the newest is the number of watches so
		// far.
		if wd > maxWatches {
			w.broken.Store(true)
		}
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP): // removed meanwhile; its parent reports that
	default:
		w.broken.Store(true)
	}
}

// Broken reports whether some directories are not watched.
func (w *Watcher) Broken() bool { return w.broken.Load() }

// Wake returns the channel that receives a signal when something has changed since Rearm.
func (w *Watcher) Wake() <-chan struct{} { return w.wake }

// Rearm must be called before a pass: later changes wake the owner again.
func (w *Watcher) Rearm() {
	select {
	case <-w.wake:
	default:
	}
	select {
	case w.arm <- struct{}{}:
	default:
	}
}

// Close ends the watcher. It may be called twice.
func (w *Watcher) Close() {
	w.once.Do(func() {
		close(w.stop)
		_ = w.file.Close() // unblocks a pending read
	})
	w.done.Wait()
}

// eventBytes is how much of the kernel's events is read at once. What is left of a burst would cause
// another pass.
const eventBytes = 64 << 10

// eventBuffers spares a buffer for each link.
var eventBuffers = sync.Pool{New: func() any { return new([eventBytes]byte) }}

// run reads the kernel's events and wakes the owner, then stops reading until the next pass: a
// burst costs one wake-up, and the kernel merges repeated events.
func (w *Watcher) run() {
	pooled := eventBuffers.Get().(*[eventBytes]byte)
	defer eventBuffers.Put(pooled)
	buf := pooled[:]
	for {
		if _, err := w.file.Read(buf); err != nil {
			return
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
		select {
		case <-w.arm:
		case <-w.stop:
			return
		}
	}
}
