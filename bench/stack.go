package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stack is one `overwinter dev` that the bench starts and stops.
type stack struct {
	program  string
	parent   string // of the data directory
	api      string // http://host:port
	temporal string
	modal    string // http://host:port
	args     []string
	command  *exec.Cmd // nil while it does not run
}

// newStack chooses ports and a data directory and starts nothing.
func newStack(ctx context.Context, bin string, flags ...string) (*stack, error) {
	var ports [4]int
	for i := range ports {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // after the loop, so that no port is chosen twice
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	parent, err := os.MkdirTemp("", "overwinter-bench-*")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(parent, 0o755); err != nil { // Postgres runs as another user below it
		return nil, err
	}
	address := func(i int) string { return "127.0.0.1:" + strconv.Itoa(ports[i]) }
	return &stack{
		program: filepath.Join(bin, "overwinter"), parent: parent,
		api: "http://" + address(0), temporal: address(1), modal: "http://" + address(3),
		args: append([]string{
			"dev", "--data-dir", filepath.Join(parent, "data"), "--api-address", address(0),
			"--temporal-port", strconv.Itoa(ports[1]), "--temporal-ui-port", strconv.Itoa(ports[2]),
			"--local-modal-port", strconv.Itoa(ports[3]),
			"--sandbox-host-ports", "1024-65535", // servers of the bench
		}, flags...),
	}, nil
}

// start returns how long it took until the system was ready.
func (s *stack) start(ctx context.Context) (time.Duration, error) {
	log, err := os.OpenFile(filepath.Join(s.parent, "dev.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()                             // the child has a duplicate
	command := exec.Command(s.program, s.args...) //nolint:noctx // our own program; stop ends it
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is for the bench alone
	began := time.Now()
	if err := command.Start(); err != nil {
		return 0, err
	}
	s.command = command
	for {
		if ready(ctx, s.api+"/readyz") {
			return time.Since(began), nil
		}
		if time.Since(began) > 2*time.Minute {
			return 0, errors.Join(errors.New("overwinter dev was not ready after two minutes"), s.tail())
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func ready(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// tail returns the end of the system's log, as an error.
func (s *stack) tail() error {
	raw, err := os.ReadFile(filepath.Join(s.parent, "dev.log"))
	if err != nil {
		return err
	}
	return errors.New(string(raw[max(0, len(raw)-4<<10):]))
}

func (s *stack) pid() int { return s.command.Process.Pid }

// databaseURL returns the URL of the system's database.
func (s *stack) databaseURL() (string, error) {
	raw, err := os.ReadFile(filepath.Join(s.parent, "data", "database-url"))
	return strings.TrimSpace(string(raw)), err
}

// stop ends the system as Ctrl-C does. It does nothing if the system is not running.
func (s *stack) stop() error {
	if s.command == nil {
		return nil
	}
	command := s.command
	s.command = nil
	if err := command.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			return errors.Join(fmt.Errorf("overwinter dev: %w", err), s.tail())
		}
		return nil
	case <-time.After(time.Minute):
		return errors.Join(errors.New("overwinter dev did not stop within a minute"), command.Process.Kill(), <-done)
	}
}

// remove deletes the data directory of a stopped system.
func (s *stack) remove() error {
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := os.RemoveAll(s.parent)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(50 * time.Millisecond) // unmounting the sandboxes may take a moment
	}
}
