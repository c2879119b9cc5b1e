package box

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// DefaultPath is the default search path for programs.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Process is a process started in a box by Exec.
type Process struct {
	id      uint64
	control *control
	done    chan struct{}
	code    int
	signal  syscall.Signal
}

// initThreads is the number of additional threads that the init of a box may need. If init cannot
// start a thread, its Go runtime aborts, which ends the box.
const initThreads = 8

// Exec starts a process. The three files are the process's ends of its streams; the caller closes
// them afterwards. If the box has fewer than initThreads processes left of its limit, the error is
// EAGAIN.
func (b *Box) Exec(spec wire.ExecSpec, stdin, stdout, stderr *os.File) (*Process, error) {
	if b.rt.cgroups != nil {
		if n, err := b.rt.cgroups.count(b.id); err == nil && n > b.limits.Processes-initThreads {
			return nil, fmt.Errorf("the sandbox has %d of at most %d processes and threads, and %d are reserved for its init: %w",
				n, b.limits.Processes, initThreads, syscall.EAGAIN)
		}
	}
	f, err := wire.MemoryFile(spec)
	if err != nil {
		return nil, err
	}
	defer wire.CloseAll([]*os.File{f})
	a, err := b.control.call(wire.Request{Op: wire.OpExec}, f, stdin, stdout, stderr)
	if err != nil {
		return nil, err
	}
	return a.process, nil
}

func (p *Process) end(code int, signal syscall.Signal) {
	p.code, p.signal = code, signal
	close(p.done)
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit returns the exit code, or the signal that ended the process. It may be
// called once Done is closed.
func (p *Process) Exit() (int, syscall.Signal) { return p.code, p.signal }

// Signal signals the process and its process group. It returns nil if the process has ended.
func (p *Process) Signal(signal syscall.Signal) error {
	err := p.control.conn.Send(wire.Request{ID: p.id, Op: wire.OpSignal, Signal: int(signal)})
	if err != nil {
		select {
		case <-p.done:
			return nil
		default:
			return fmt.Errorf("signal process: %w", err)
		}
	}
	return nil
}

// Dial connects to an address from inside the box's network namespace.
func (b *Box) Dial(ctx context.Context, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1) // the receiver may be gone
	go func() {
		conn, err := b.dial(address)
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		return r.conn, r.err
	case <-ctx.Done():
		go func() { // init bounds the attempt itself; its connection is then discarded
			if r := <-done; r.err == nil {
				_ = r.conn.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

func (b *Box) dial(address string) (net.Conn, error) {
	a, err := b.control.call(wire.Request{Op: wire.OpDial, Address: address})
	if err != nil {
		return nil, err
	}
	defer wire.CloseAll(a.files)
	if len(a.files) != 1 {
		return nil, fmt.Errorf("dial %s: got %d files, not 1", address, len(a.files))
	}
	return net.FileConn(a.files[0])
}

// Mount mounts an empty file system at path and fills it from the tar stream in archive unless that
// is nil. Snapshots of the root do not contain it.
func (b *Box) Mount(path string, archive *os.File) error {
	var files []*os.File
	if archive != nil {
		files = append(files, archive)
	}
	_, err := b.control.call(wire.Request{Op: wire.OpMount, Path: path}, files...)
	return err
}

// Unmount reverses Mount.
func (b *Box) Unmount(path string) error {
	_, err := b.control.call(wire.Request{Op: wire.OpUnmount, Path: path})
	return err
}

// Archive writes the tree below path to out as a tar stream while the box is frozen. With
// oneFilesystem it omits mounts.
func (b *Box) Archive(path string, oneFilesystem bool, out *os.File) error {
	b.lockSnapshots()
	defer b.snapshots.Unlock()
	return b.whileFrozen(func() error {
		_, err := b.control.call(wire.Request{Op: wire.OpArchive, Path: path, OneFilesystem: oneFilesystem}, out)
		return err
	})
}

func (b *Box) whileFrozen(f func() error) error {
	if _, err := b.control.call(wire.Request{Op: wire.OpFreeze}); err != nil {
		return fmt.Errorf("freeze sandbox: %w", err)
	}
	err := f()
	if _, thaw := b.control.call(wire.Request{Op: wire.OpThaw}); thaw != nil {
		err = errors.Join(err, fmt.Errorf("thaw sandbox: %w", thaw))
	}
	return err
}

// tryTimeout bounds the trial of a box, on a possibly very busy machine.
const tryTimeout = 20 * time.Second

// try runs a shell, freezes the box and thaws it: every box must support this.
func (b *Box) try() error {
	none, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("try sandbox: %w", err)
	}
	defer wire.CloseAll([]*os.File{none})
	p, err := b.Exec(wire.ExecSpec{
		Args: []string{"sh", "-c", "test -d /proc/self && test -d /var/lib && : > /tmp/tried"}, Env: []string{"PATH=" + DefaultPath}, Dir: "/",
	}, none, none, none)
	if err != nil {
		return fmt.Errorf("try sandbox: %w", err)
	}
	overdue := time.NewTimer(tryTimeout)
	defer overdue.Stop()
	select {
	case <-p.Done():
	case <-overdue.C:
		return errors.New("try sandbox: a shell does not end")
	}
	if code, signal := p.Exit(); code != 0 || signal != 0 {
		return fmt.Errorf("try sandbox: a shell ended with code %d, signal %d", code, signal)
	}
	return b.whileFrozen(func() error { return nil })
}
