package boxinit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/hostmount"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// maxError keeps a response well below the packet limit.
const maxError = 8 << 10

// initProcess is PID 1 of a sandbox.
type initProcess struct {
	conn   *wire.Conn
	ending atomic.Bool // all processes are being killed, and none is started
	// family means that there is no PID namespace that ends init's descendants: init must do so
	// itself.
	family bool
	// directory is set if the root is a plain directory; init itself stays outside.
	directory *directory

	// running is held for reading while a process starts and for writing while the sandbox is
	// frozen.
	running sync.RWMutex
	frozen  []int        // PIDs that freeze stopped, in order; guarded by running
	stopped map[int]bool // set of the same PIDs

	inner     *innerNamespaces // namespaces of processes, on the level namespaces
	self      uintptr          // a descriptor of this program
	proc      *os.Root         // /proc, opened before the first process
	terminals int              // a descriptor of /dev/pts, opened at the same time; 0 if the root is a plain directory

	// For our network namespace, until they are sent to the host.
	device  *netdevice.Device
	sockets *netdevice.HostSockets // nil without host ports
	lack    string                 // why there are no sockets although they are needed

	memory int64 // memory limit of the sandbox

	mu    sync.Mutex // held around fork, so that the reaper cannot miss a PID
	execs map[int]uint64
	pids  map[uint64]int
}

func runInit() error {
	conn, err := wire.FromFile(os.NewFile(wire.ControlFD, "control"))
	if err != nil {
		return err
	}
	p := &initProcess{conn: conn, execs: map[int]uint64{}, pids: map[uint64]int{}}
	if err := p.setup(); err != nil {
		return errors.Join(err, conn.Send(wire.Response{Op: wire.OpError, Error: err.Error()}))
	}
	children := make(chan os.Signal, 1) // one pending wake-up is enough: reap takes all
	if p.directory == nil {             // otherwise the tracer reaps
		signal.Notify(children, syscall.SIGCHLD)
	}
	// Signals are caught and dropped rather than ignored, which processes would inherit. Any
	// process of the sandbox may send signals that would end a Go program.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE,
		syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGSTKFLT,
		syscall.SIGILL, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV) // our own faults still end us
	go func() {
		for range children {
			p.reap()
		}
	}()
	if err := p.ready(); err != nil {
		return err
	}
	return p.serve()
}

// ready reports that the sandbox can be used, and sends its network device.
func (p *initProcess) ready() error {
	response := wire.Response{Op: wire.OpReady, PID: os.Getpid()}
	if p.device == nil {
		return p.conn.Send(response)
	}
	response.Device, response.Lack = string(p.device.Kind), p.lack
	files := []*os.File{p.device.File}
	if p.sockets != nil {
		files = append(files, p.sockets.Files()...)
	}
	err := p.conn.Send(response, files...)
	wire.CloseAll(files)
	return err
}

func (p *initProcess) setup() error {
	var spec wire.RootSpec
	f := os.NewFile(wire.SpecFD, "spec")
	err := json.NewDecoder(f).Decode(&spec)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read root spec: %w", err)
	}
	p.memory = spec.Memory
	if spec.Expendable {
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(expendable)), 0); err != nil {
			return fmt.Errorf("be ended first: %w", err)
		}
	}
	syscall.Umask(0o022)
	if err := limitOpenFiles(); err != nil {
		return err
	}
	if p.self, err = openSelf(); err != nil {
		return err
	}
	if spec.Network { // while the machine's devices are visible
		if err := p.openNetwork(spec.HostPorts); err != nil {
			return err
		}
	}
	if spec.Level == wire.LevelDirectory {
		p.directory, err = openDirectory(p, spec)
	} else {
		err = buildRoot(spec)
	}
	if err != nil {
		return err
	}
	if err := p.openSystem(); err != nil {
		return err
	}
	if spec.Workdir != "" {
		dir, err := p.outside(spec.Workdir)
		if err == nil {
			err = os.MkdirAll(dir, 0o755)
		}
		if err != nil {
			return fmt.Errorf("make working directory: %w", err)
		}
	}
	if spec.Level == wire.LevelChroot {
		p.family = true
	}
	if spec.Level != wire.LevelNamespaces {
		return adoptOrphans()
	}
	return p.isolate(spec)
}

func (p *initProcess) openNetwork(hostPorts []uint16) error {
	var err error
	if p.device, err = netdevice.Open(); err != nil {
		return err
	}
	if len(hostPorts) > 0 {
		if p.sockets, err = netdevice.OpenHostSockets(hostPorts); err != nil {
			p.lack = err.Error()
		}
	}
	return nil
}

// isolate completes the set-up of namespaces: limits, and the inner user namespace in which all
// other processes run.
func (p *initProcess) isolate(spec wire.RootSpec) error {
	var err error
	if err := syscall.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if spec.Loopback {
		if err := loopbackUp(); err != nil {
			return err
		}
	}
	if err := limitProcesses(spec.Processes); err != nil {
		return err
	}
	if err := limitUser(); err != nil {
		return err
	}
	if p.inner, err = makeInner(spec.IDs); err != nil {
		return err
	}
	// From here on no process of the sandbox may inspect this process, nor a forked one that has
	// not executed its program yet: whether a process is dumpable depends on the namespace in which
	// it was executed, which is the outer one.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("protect init: %w", err)
	}
	return nil
}

// openSelf opens this program. Processes that execute it make it visible to all others in the
// sandbox: if it belongs to their user, it must not be writable.
func openSelf() (uintptr, error) {
	if path, err := os.Readlink(self); err == nil {
		if t, err := hostmount.Clone(wire.Mount{Source: path, ReadOnly: true}, -1); err == nil {
			return uintptr(t.FD), nil
		}
	}
	fd, err := unix.Open(self, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", self, err)
	}
	return uintptr(fd), nil
}

// openSystem opens the system's files that init needs later, when processes of the sandbox may have
// replaced them.
func (p *initProcess) openSystem() (err error) {
	if p.proc, err = os.OpenRoot("/proc"); err != nil {
		return err
	}
	if p.directory != nil {
		return nil
	}
	p.terminals, err = unix.Open("/dev/pts", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

// serve handles requests until the host disconnects or sends OpEnd; then the remaining processes
// are killed. Requests run concurrently: a dial may take seconds, and thaw must be handled while an
// exec waits for it.
func (p *initProcess) serve() error {
	for {
		var request wire.Request
		files, err := p.conn.Receive(&request)
		if err == nil && request.Op == wire.OpEnd {
			wire.CloseAll(files)
			err = io.EOF
		}
		if err != nil {
			p.end()
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
				return nil
			}
			return err
		}
		go func() {
			defer wire.CloseAll(files)
			p.handle(request, files)
		}()
	}
}

func (p *initProcess) handle(request wire.Request, files []*os.File) {
	switch request.Op {
	case wire.OpExec:
		if err := p.exec(request.ID, files); err != nil {
			p.answer(request.ID, err)
		}
	case wire.OpSignal:
		p.signal(request.ID, syscall.Signal(request.Signal))
	case wire.OpFreeze:
		p.answer(request.ID, p.freeze())
	case wire.OpThaw:
		p.answer(request.ID, p.thaw())
	case wire.OpDial:
		conn, err := dial(request.Address)
		if err != nil {
			p.answer(request.ID, err)
			return
		}
		p.send(wire.Response{ID: request.ID, Op: wire.OpConn}, conn)
		wire.CloseAll([]*os.File{conn})
	case wire.OpMount:
		if p.directory != nil {
			p.answer(request.ID, p.directory.mountImage(request.Path, files))
			return
		}
		p.answer(request.ID, mountImage(request.Path, p.memory, files))
	case wire.OpUnmount:
		if p.directory != nil {
			p.answer(request.ID, p.directory.unmountImage(request.Path))
			return
		}
		p.answer(request.ID, unmountImage(request.Path))
	case wire.OpArchive:
		dir, err := p.outside(request.Path)
		if err == nil {
			err = archive(dir, request.OneFilesystem, files)
		}
		p.answer(request.ID, err)
	default:
		p.answer(request.ID, fmt.Errorf("unknown request %q", request.Op))
	}
}

func (p *initProcess) answer(id uint64, err error) {
	response := wire.Response{ID: id, Op: wire.OpOK}
	if err != nil {
		response.Op, response.Error = wire.OpError, err.Error()
		if len(response.Error) > maxError {
			response.Error = response.Error[:maxError]
		}
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			response.Errno = int(errno)
		}
	}
	p.send(response)
}

// send ends the sandbox if the host cannot be reached: it has no client any more, and would become
// an orphan.
func (p *initProcess) send(response wire.Response, files ...*os.File) {
	if err := p.conn.Send(response, files...); err != nil {
		if p.ending.Load() {
			return
		}
		if !p.family && p.directory == nil {
			os.Exit(0)
		}
		// The reader detects the same end, and kills processes if there is no PID namespace.
	}
}

// end kills processes that would not die with init.
func (p *initProcess) end() {
	if p.family {
		p.endFamily()
	}
	if p.directory != nil {
		p.ending.Store(true)
		if err := p.directory.tracer.End(); err != nil {
			fmt.Fprintln(os.Stderr, "sandbox init:", err) // they are also killed when init ends
		}
	}
}

// limitProcesses bounds the processes of the inner user namespace, which is created next. Since
// Linux 5.14 a namespace inherits its creator's limit, for all of its users together and regardless
// of capabilities. Earlier kernels count the user's processes on the whole machine, so no limit is
// set.
func limitProcesses(n int) error {
	if n == 0 || !countsByNamespace() {
		return nil
	}
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &have); err != nil {
		return fmt.Errorf("read limit of processes: %w", err)
	}
	most := min(uint64(n), have.Max)
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		return fmt.Errorf("limit processes: %w", err)
	}
	return nil
}

// limitUser bounds the share of the inner user namespace in limits that the kernel charges to the
// creator of ours, who is the user of the server: pending signals, including timers, and message
// queues. As for processes, the namespace inherits its creator's limits, and each process inherits
// them.
func limitUser() error {
	for _, resource := range []int{unix.RLIMIT_SIGPENDING, unix.RLIMIT_MSGQUEUE} {
		var have unix.Rlimit
		if err := unix.Getrlimit(resource, &have); err != nil {
			return fmt.Errorf("read limit %d: %w", resource, err)
		}
		if have.Cur == unix.RLIM_INFINITY {
			continue
		}
		share := have.Cur / 4
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: share, Max: share}); err != nil {
			return fmt.Errorf("set limit %d: %w", resource, err)
		}
	}
	return nil
}

// limitOpenFiles bounds the open files of each process of the sandbox.
func limitOpenFiles() error {
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &have); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	most := min(have.Max, openFiles)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		return fmt.Errorf("limit open files: %w", err)
	}
	return nil
}

// countsByNamespace reports whether the kernel is Linux 5.14 or later.
func countsByNamespace() bool {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 5 || major == 5 && minor >= 14
}
