package main

import "github.com/overwinter-dev/overwinter/internal/localmodal/box"

// sandboxLimitFlags bound what each sandbox of the local Modal takes of the machine.
type sandboxLimitFlags struct {
	SandboxProcesses int     `env:"OVERWINTER_SANDBOX_PROCESSES" placeholder:"N" help:"Processes and threads of a sandbox of the local Modal. Default: 8192."`
	SandboxMemoryMiB int64   `name:"sandbox-memory-mib" env:"OVERWINTER_SANDBOX_MEMORY_MIB" placeholder:"N" help:"Memory of a sandbox of the local Modal in MiB, where the machine has control groups. Default: three quarters of the machine's, which all sandboxes share."`
	SandboxCPUs      float64 `name:"sandbox-cpus" env:"OVERWINTER_SANDBOX_CPUS" placeholder:"N" help:"CPUs of a sandbox of the local Modal, such as 1.5, where the machine has control groups. Default: all, with half the weight of other programs."`
}

// limits are the flags as the local Modal takes them; an error names the bound.
func (f sandboxLimitFlags) limits() (box.Limits, error) {
	l := box.Limits{Processes: f.SandboxProcesses, Memory: f.SandboxMemoryMiB << 20, CPUs: f.SandboxCPUs}
	return l, l.Check()
}
