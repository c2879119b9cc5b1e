package tracer

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const options = unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACEEXEC |
	unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEVFORKDONE

// Ended is called for every ended process, with its status. It runs on the tracer's thread and must
// not call the tracer.
type Ended func(pid int, status syscall.WaitStatus)

// Tracer runs processes in a View. It is safe for concurrent use. No other part
// of the program may wait for children.
type Tracer struct {
	view     *View
	ended    Ended
	commands chan func()
	events   chan struct{} // a process has an event
	handled  chan struct{} // the event has been handled
	newTask  chan struct{} // there is a process to wait for

	// Used only by the tracer's thread.
	tasks   map[int]*task
	frozen  bool
	ending  bool
	waiters []chan struct{} // notified of each event
}

// task is a thread of a traced process.
type task struct {
	tid, group int
	memory     *memory
	slot       int
	doing      doing
	saved      unix.PtraceRegs // registers at the start of the call

	parked    bool // stopped before its parent reported it
	held      bool // stopped until the thaw
	signal    int  // signal to deliver at the thaw
	listening bool // in a group stop, which ends with SIGCONT
	vforked   bool // waits for its child inside the kernel
	gone      bool // has ended, but cannot be waited for yet
}

// doing is the action at the end of the current system call.
type doing int

const (
	nothing doing = iota
	restoring
	allocating
)

// New starts a tracer, which lives as long as this process.
func New(view *View, ended Ended) (*Tracer, error) {
	t := &Tracer{
		view: view, ended: ended, tasks: map[int]*task{},
		commands: make(chan func()), events: make(chan struct{}), handled: make(chan struct{}), newTask: make(chan struct{}, 1),
	}
	go t.loop()
	go t.wait()
	return t, nil
}

// wait notifies the tracer's thread of an event of a process, because that thread cannot wait for
// two sources at once.
func (t *Tracer) wait() {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT|unix.WALL, nil)
		switch {
		case err == nil:
			t.events <- struct{}{}
			<-t.handled
		case errors.Is(err, unix.ECHILD):
			<-t.newTask
		}
	}
}

func (t *Tracer) loop() {
	runtime.LockOSThread() // the kernel only accepts ptrace requests of the tracing thread
	for {
		select {
		case f := <-t.commands:
			f()
		case <-t.events:
			t.drain()
			t.handled <- struct{}{}
		}
	}
}

func (t *Tracer) drain() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			break
		}
		t.event(pid, status)
	}
	for _, w := range t.waiters {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// do runs f on the tracer's thread.
func (t *Tracer) do(f func()) {
	var done sync.WaitGroup
	done.Add(1)
	t.commands <- func() {
		defer done.Done()
		f()
	}
	done.Wait()
}

// Start starts a process. The path and the directory of attr are outside paths. Ended is not called
// for it before Start and after have returned.
func (t *Tracer) Start(path string, args []string, attr *syscall.ProcAttr, after func(pid int)) (err error) {
	t.do(func() {
		if t.ending {
			err = errors.New("the sandbox is ending")
			return
		}
		var pid int
		if pid, err = t.start(path, args, attr); err == nil {
			after(pid)
		}
	})
	return err
}

func (t *Tracer) start(path string, args []string, attr *syscall.ProcAttr) (int, error) {
	attr.Sys.Ptrace = true
	attr.Sys.Pdeathsig = syscall.SIGKILL // until tracing ensures it
	pid, err := syscall.ForkExec(path, args, attr)
	if err != nil {
		return 0, fmt.Errorf("exec %s: %w", path, err)
	}
	select {
	case t.newTask <- struct{}{}:
	default:
	}
	if err := adopt(pid); err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, unix.WALL, nil)
		return 0, fmt.Errorf("trace %s: %w", path, err)
	}
	m := &memory{}
	k := &task{tid: pid, group: pid, memory: m, slot: m.take()}
	t.tasks[pid] = k
	t.resume(k, 0)
	return pid, nil
}

// adopt starts tracing a process that has requested to be traced and is at its first instruction.
// It installs the filter, and traces the process again in the mode that supports group stops and
// interruptions, which the process itself cannot request.
func adopt(pid int) error {
	if err := expect(pid, unix.SIGTRAP); err != nil {
		return err
	}
	if err := install(pid); err != nil {
		return fmt.Errorf("install filter: %w", err)
	}
	if err := ptrace(unix.PTRACE_DETACH, pid, uint64(unix.SIGSTOP)); err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	if err := unix.PtraceSeize(pid); err != nil {
		return fmt.Errorf("seize: %w", err)
	}
	if err := expect(pid, unix.SIGSTOP); err != nil {
		return err
	}
	if err := unix.PtraceSetOptions(pid, options); err != nil {
		return fmt.Errorf("set options: %w", err)
	}
	return unix.Kill(pid, unix.SIGCONT)
}

func expect(pid int, signal unix.Signal) error {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		if !status.Stopped() || status.StopSignal() != signal {
			return fmt.Errorf("wait: status %#x, not a stop by %v", uint32(status), signal)
		}
		return nil
	}
}

// install makes the process install the filter, by two system calls written at its current
// instruction.
func install(pid int) error {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return err
	}
	code := make([]byte, 8)
	if _, err := unix.PtracePeekText(pid, uintptr(regs.Rip), code); err != nil {
		return err
	}
	calling := append([]byte{0x0f, 0x05, 0xcc}, code[3:]...) // syscall, int3
	if _, err := unix.PtracePokeText(pid, uintptr(regs.Rip), calling); err != nil {
		return err
	}
	address := regs.Rsp&^15 - 32<<10 // unused, since the process has not run yet
	program := filter()
	if err := write(pid, address, encode(program, address)); err != nil {
		return err
	}
	for _, c := range [][4]uint64{
		{unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0},
		{unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, address},
	} {
		r := regs
		r.Rax, r.Rdi, r.Rsi, r.Rdx, r.R10, r.R8, r.Orig_rax = c[0], c[1], c[2], c[3], 0, 0, ^uint64(0)
		if err := unix.PtraceSetRegs(pid, &r); err != nil {
			return err
		}
		if err := unix.PtraceCont(pid, 0); err != nil {
			return err
		}
		if err := expect(pid, unix.SIGTRAP); err != nil {
			return err
		}
		if err := unix.PtraceGetRegs(pid, &r); err != nil {
			return err
		}
		if result := int64(r.Rax); result < 0 {
			return unix.Errno(-result)
		}
	}
	if _, err := unix.PtracePokeText(pid, uintptr(regs.Rip), code); err != nil {
		return err
	}
	return unix.PtraceSetRegs(pid, &regs)
}

func ptrace(request, pid int, data uint64) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), 0, uintptr(data), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// event handles one event of a thread.
func (t *Tracer) event(pid int, status unix.WaitStatus) {
	k := t.tasks[pid]
	if !status.Stopped() {
		if k != nil {
			k.memory.release(k.slot)
			delete(t.tasks, pid)
		}
		t.ended(pid, syscall.WaitStatus(status))
		t.unpark()
		return
	}
	if k == nil || k.parked {
		t.tasks[pid] = &task{tid: pid, parked: true, memory: &memory{}}
		return
	}
	k.listening = false
	signal := status.StopSignal()
	switch uint32(status) >> 16 {
	case 0:
		if signal == unix.SIGTRAP|0x80 {
			t.callDone(k)
			return
		}
		t.resume(k, int(signal))
	case unix.PTRACE_EVENT_SECCOMP:
		t.callMade(k)
	case unix.PTRACE_EVENT_FORK, unix.PTRACE_EVENT_VFORK, unix.PTRACE_EVENT_CLONE:
		k.vforked = uint32(status)>>16 == unix.PTRACE_EVENT_VFORK
		t.addChild(k)
		t.resume(k, 0)
	case unix.PTRACE_EVENT_VFORK_DONE:
		k.vforked = false
		t.resume(k, 0)
	case unix.PTRACE_EVENT_EXEC:
		t.executed(k)
	case unix.PTRACE_EVENT_STOP:
		if signal == unix.SIGTRAP {
			t.resume(k, 0)
			return
		}
		// A group stop lasts until a SIGCONT, which is reported separately.
		k.listening = true
		_ = ptrace(unix.PTRACE_LISTEN, k.tid, 0) // fails if it was killed meanwhile
	default:
		t.resume(k, 0)
	}
}

// resume continues a thread, now or with the thaw.
func (t *Tracer) resume(k *task, signal int) {
	if t.frozen {
		k.held, k.signal = true, signal
		return
	}
	request := unix.PTRACE_CONT
	if k.doing != nothing {
		request = unix.PTRACE_SYSCALL // run to the end of the call
	}
	_ = ptrace(request, k.tid, uint64(signal)) // fails if it was killed meanwhile
}

const (
	cloneThread = 0x10000
	cloneVM     = 0x100
)

// addChild starts tracking the child that a thread has created.
func (t *Tracer) addChild(k *task) {
	message, err := unix.PtraceGetEventMsg(k.tid)
	if err != nil {
		return // it was killed, and the child will be handled as one that stopped early
	}
	pid := int(message)
	flags := t.cloneFlags(k)
	child := &task{tid: pid, group: pid}
	if flags&cloneThread != 0 {
		child.group = k.group
	}
	if flags&cloneVM != 0 {
		child.memory = k.memory
	} else {
		child.memory = &memory{scratch: k.memory.scratch}
	}
	child.slot = child.memory.take()
	early := t.tasks[pid]
	if early != nil && !early.parked {
		return // it was handled as an orphan and needs no parent
	}
	t.tasks[pid] = child
	if early != nil {
		t.resume(child, 0)
	}
}

// unpark continues children whose parents may have been killed before they could report them. They
// get separate scratch memory, regardless of the memory that they actually share.
func (t *Tracer) unpark() {
	for _, k := range t.tasks {
		if k.parked {
			k.parked, k.group, k.slot = false, groupOf(k.tid), k.memory.take()
			t.resume(k, 0)
		}
	}
}

func groupOf(tid int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/status")
	if err != nil {
		return tid // it has ended
	}
	_, rest, _ := strings.Cut(string(status), "\nTgid:")
	line, _, _ := strings.Cut(rest, "\n")
	group, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return tid
	}
	return group
}

func (t *Tracer) cloneFlags(k *task) uint64 {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(k.tid, &regs) != nil {
		return 0
	}
	switch regs.Orig_rax {
	case unix.SYS_VFORK:
		return cloneVM
	case unix.SYS_CLONE:
		return regs.Rdi
	case unix.SYS_CLONE3:
		flags, err := readWord(k.tid, regs.Rdi)
		if err != nil {
			return 0
		}
		return flags
	}
	return 0
}

// executed makes a thread the only one of its process, with a new address space.
func (t *Tracer) executed(k *task) {
	if former, err := unix.PtraceGetEventMsg(k.tid); err == nil && int(former) != k.tid {
		if other := t.tasks[int(former)]; other != nil {
			other.memory.release(other.slot)
			delete(t.tasks, int(former))
		}
	}
	k.memory.release(k.slot)
	k.memory = &memory{}
	k.slot, k.doing, k.vforked = k.memory.take(), nothing, false
	t.resume(k, 0)
}

// freezeTimeout bounds the wait for threads to stop.
const freezeTimeout = 5 * time.Second

// Freeze stops every process, and returns when all have stopped.
func (t *Tracer) Freeze() error {
	return t.until(freezeTimeout, func() {
		t.frozen = true
		for _, k := range t.tasks {
			if !k.still() {
				// A main thread that has ended before the others remains until they end.
				k.gone = errors.Is(ptrace(unix.PTRACE_INTERRUPT, k.tid, 0), unix.ESRCH)
			}
		}
	}, func() bool {
		for _, k := range t.tasks {
			if !k.still() {
				return false
			}
		}
		return true
	}, t.thaw)
}

func (k *task) still() bool { return k.held || k.listening || k.parked || k.vforked || k.gone }

// Thaw reverses Freeze.
func (t *Tracer) Thaw() { t.do(t.thaw) }

func (t *Tracer) thaw() {
	t.frozen = false
	for _, k := range t.tasks {
		if k.held {
			k.held = false
			t.resume(k, k.signal)
		}
	}
}

// endTimeout bounds the wait for killed processes.
const endTimeout = 4 * time.Second

// End kills every process and returns when all have ended. No process can be started any more.
func (t *Tracer) End() error {
	kill := func() {
		for pid := range t.tasks {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	return t.until(endTimeout, func() {
		t.ending, t.frozen = true, false
		kill()
	}, func() bool {
		kill() // also those that were just being created
		return len(t.tasks) == 0
	}, func() {})
}

// until runs begin, and then waits until done, which is called after each event, returns true. If
// that exceeds the limit, it runs abort.
func (t *Tracer) until(limit time.Duration, begin func(), done func() bool, abort func()) error {
	woken := make(chan struct{}, 1)
	finished := false
	t.do(func() {
		begin()
		t.waiters = append(t.waiters, woken)
		finished = done()
	})
	overdue := time.NewTimer(limit)
	defer overdue.Stop()
	var err error
	for !finished && err == nil {
		select {
		case <-woken:
			t.do(func() { finished = done() })
		case <-overdue.C:
			err = fmt.Errorf("not every process stopped within %v", limit)
			t.do(abort)
		}
	}
	t.do(func() {
		t.waiters = slices.DeleteFunc(t.waiters, func(w chan struct{}) bool { return w == woken })
	})
	return err
}
