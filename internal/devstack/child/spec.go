package child

import (
	"context"
	"log/slog"
	"syscall"
	"time"
)

// Spec describes how a child is run.
type Spec struct {
	// Name is the child's name in logs, in errors and of its files. Required.
	Name string
	// Command is the program, the same at each start. Required.
	Command Command
	// Ready returns nil once the child responds. It is called repeatedly while the child starts,
	// each time with a deadline of a few seconds. Default: ready when started.
	Ready func(ctx context.Context) error
	// ReadyTimeout is how long a start may take. Default 60 s.
	ReadyTimeout time.Duration
	// StopSignal asks the program to end. Default SIGTERM.
	StopSignal syscall.Signal
	// StopTimeout is how long it may take to end before it is killed. Default 10 s.
	StopTimeout time.Duration
	// Severity returns the level of a line of its output. Default: jsonSeverity.
	Severity func(line []byte) slog.Level
	// EchoLevel is the minimum severity of lines that are shown in addition to being logged, once
	// the child is ready. Default slog.LevelWarn.
	EchoLevel slog.Level
}

// Command is a program with its environment.
type Command struct {
	// Path of the program. Required.
	Path string
	// Args after the program's name.
	Args []string
	// Env is its whole environment, as NAME=value; the last value of a repeated name applies.
	Env []string
	// Dir is its working directory. Default: the supervisor's.
	Dir string
	// Credential is the user it runs as. Default: the supervisor's.
	Credential *syscall.Credential
	// DeathSignal is sent by the kernel when the supervisor dies. Default SIGKILL.
	DeathSignal syscall.Signal
	// HoldStdin gives it a stdin that closes when the supervisor ends. Default: an empty stdin.
	HoldStdin bool
}

func (s Spec) withDefaults() Spec {
	if s.Ready == nil {
		s.Ready = func(context.Context) error { return nil }
	}
	if s.ReadyTimeout == 0 {
		s.ReadyTimeout = 60 * time.Second
	}
	if s.StopSignal == 0 {
		s.StopSignal = syscall.SIGTERM
	}
	if s.StopTimeout == 0 {
		s.StopTimeout = 10 * time.Second
	}
	if s.Severity == nil {
		s.Severity = jsonSeverity
	}
	if s.EchoLevel == 0 { // info, which would be too much output for a terminal
		s.EchoLevel = slog.LevelWarn
	}
	if s.Command.DeathSignal == 0 {
		s.Command.DeathSignal = syscall.SIGKILL
	}
	return s
}
