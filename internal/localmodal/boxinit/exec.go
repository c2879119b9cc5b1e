package boxinit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// exec starts a process; files are spec, stdin, stdout, stderr. If it succeeds, it has sent the
// response.
func (p *initProcess) exec(id uint64, files []*os.File) error {
	if len(files) != 4 {
		return fmt.Errorf("exec came with %d files, not 4", len(files))
	}
	var spec wire.ExecSpec
	if err := json.NewDecoder(files[0]).Decode(&spec); err != nil {
		return fmt.Errorf("read exec spec: %w", err)
	}
	path, args, dir, err := p.resolve(spec)
	if err != nil {
		return err
	}
	attr := &syscall.ProcAttr{Dir: dir, Env: spec.Env, Sys: &syscall.SysProcAttr{Setsid: true}}
	if !spec.Terminal {
		attr.Files = []uintptr{files[1].Fd(), files[2].Fd(), files[3].Fd()}
		return p.fork(id, path, args, attr)
	}
	term, err := p.openTerminal(spec.Rows, spec.Cols)
	if err != nil {
		return err
	}
	defer term.closeSlave()
	fd := term.slave.Fd()
	attr.Files = []uintptr{fd, fd, fd}
	attr.Sys.Setctty = true
	if err := p.fork(id, path, args, attr); err != nil {
		term.closeMaster()
		return err
	}
	return term.pump(files[1], files[2])
}

func (p *initProcess) fork(id uint64, path string, args []string, attr *syscall.ProcAttr) error {
	p.running.RLock()
	defer p.running.RUnlock()
	if p.directory != nil {
		return p.directory.start(path, args, attr, func(pid int) { p.started(id, pid) })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending.Load() {
		return errors.New("the sandbox is ending")
	}
	if p.inner != nil {
		return p.forkInside(id, path, args, attr)
	}
	if p.family {
		// The process inherits the state of the thread that forks it; the thread ends with this
		// request.
		runtime.LockOSThread()
		if err := installFilter(); err != nil {
			return err
		}
		if err := dropCapabilities(); err != nil {
			return err
		}
		// It must not inherit the keyring of the user who started the server. The call fails
		// harmlessly on a kernel without keyrings.
		_, _ = unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	}
	pid, err := syscall.ForkExec(path, args, attr)
	if err != nil {
		return fmt.Errorf("exec %s: %w", path, err)
	}
	p.execs[pid], p.pids[id] = id, pid
	p.send(wire.Response{ID: id, Op: wire.OpStarted, PID: pid})
	return nil
}

// resolve finds the program and the directory. In a separate mount namespace, a process may see
// other files than init, so there the process itself finds them.
func (p *initProcess) resolve(spec wire.ExecSpec) (path string, args []string, dir string, err error) {
	if p.inner != nil {
		if spec.FileTools != "" {
			return self, []string{wire.FileToolsName, spec.FileTools}, spec.Dir, nil
		}
		if len(spec.Args) == 0 || spec.Args[0] == "" {
			return "", nil, "", errors.New("exec: empty command")
		}
		return spec.Args[0], spec.Args, spec.Dir, nil
	}
	if path, args, err = p.program(spec); err != nil {
		return "", nil, "", err
	}
	if dir, err = p.outside(spec.Dir); err != nil {
		return "", nil, "", err
	}
	if info, err := os.Stat(dir); err != nil {
		return "", nil, "", fmt.Errorf("working directory: %w", err)
	} else if !info.IsDir() {
		return "", nil, "", fmt.Errorf("working directory %s is not a directory", spec.Dir)
	}
	return path, args, dir, nil
}

// forkInside starts a process in the inner namespaces. The caller holds p.mu.
func (p *initProcess) forkInside(id uint64, path string, args []string, attr *syscall.ProcAttr) error {
	file, programs := noFile, []string(nil)
	if path == self {
		file = p.self
	} else if programs = candidates(path, lookupEnv(attr.Env, "PATH"), attr.Dir); len(programs) == 0 {
		return fmt.Errorf("exec: %q: executable file not found in $PATH", path)
	}
	s, err := newSpawn(p.inner, file, programs, args, attr)
	if err != nil {
		return fmt.Errorf("exec %s: %w", path, err)
	}
	pid, err := s.start()
	var failed *spawnError
	switch {
	case errors.As(err, &failed) && failed.stage == stageDirectory:
		return fmt.Errorf("working directory %s: %w", attr.Dir, failed.errno)
	case errors.As(err, &failed) && failed.stage == stageExecute && !strings.Contains(path, "/"):
		return fmt.Errorf("exec: %q: executable file not found in $PATH: %w", path, failed.errno)
	case err != nil:
		return fmt.Errorf("exec %s: %w", path, err)
	}
	p.execs[pid], p.pids[id] = id, pid
	p.send(wire.Response{ID: id, Op: wire.OpStarted, PID: pid})
	return nil
}

// candidates returns the files to which a program's name may refer, as in execvp.
func candidates(name, path, dir string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var found []string
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		found = append(found, filepath.Join(d, name))
	}
	return found
}

// started must be called for a process before its end can be reported.
func (p *initProcess) started(id uint64, pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.execs[pid], p.pids[id] = id, pid
	p.send(wire.Response{ID: id, Op: wire.OpStarted, PID: pid})
}

// signal signals the process and its group. It returns nil if the process has ended, because the
// request and the exit message may cross.
func (p *initProcess) signal(id uint64, sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pid := p.pids[id]; pid > 0 {
		_ = syscall.Kill(-pid, sig)
		_ = syscall.Kill(pid, sig)
	}
}

// reap collects all ended children, including adopted ones.
func (p *initProcess) reap() {
	for p.reapOne() {
	}
}

func (p *initProcess) reapOne() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	if err == syscall.EINTR {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	p.reaped(pid, status)
	return true
}

// exited is called by a tracer, which then does the reaping.
func (p *initProcess) exited(pid int, status syscall.WaitStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped(pid, status)
}

// reaped reports the end of a process that the host has started. The caller holds p.mu.
func (p *initProcess) reaped(pid int, status syscall.WaitStatus) {
	id, ok := p.execs[pid]
	if !ok {
		return
	}
	delete(p.execs, pid)
	delete(p.pids, id)
	response := wire.Response{ID: id, Op: wire.OpExited}
	if status.Signaled() {
		response.Signal = int(status.Signal())
	} else {
		response.Code = status.ExitStatus()
	}
	p.send(response)
}

// self is the path of this program.
const self = "/proc/self/exe"

// outside returns the path of the sandbox as init sees it. Both share the same root on all levels
// but one.
func (p *initProcess) outside(inside string) (string, error) {
	if p.directory == nil {
		return inside, nil
	}
	return p.directory.outside(inside)
}

func (p *initProcess) program(spec wire.ExecSpec) (string, []string, error) {
	if spec.FileTools != "" {
		return self, []string{wire.FileToolsName, spec.FileTools}, nil
	}
	if len(spec.Args) == 0 || spec.Args[0] == "" {
		return "", nil, fmt.Errorf("exec: empty command")
	}
	path, err := p.lookPath(spec.Args[0], lookupEnv(spec.Env, "PATH"), spec.Dir)
	return path, spec.Args, err
}

// lookPath finds name like execvp, with the process's own PATH and directory.
func (p *initProcess) lookPath(name, path, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		candidate := filepath.Join(d, name)
		file, err := p.outside(candidate)
		if err != nil {
			continue
		}
		if info, err := os.Stat(file); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}

// lookupEnv returns the last setting of key, which is the one that a process sees.
func lookupEnv(env []string, key string) string {
	value := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			value = v
		}
	}
	return value
}
