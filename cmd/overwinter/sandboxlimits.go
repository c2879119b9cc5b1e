package main

import "github.com/overwinter-dev/overwinter/internal/localmodal/box"

// sandboxLimitFlags limit the resources of each sandbox of the local Modal.
type sandboxLimitFlags struct {
	SandboxProcesses int     `env:"OVERWINTER_SANDBOX_PROCESSES" placeholder:"N" help:"Processes and threads of a sandbox of the local Modal. Default: 8192."`
	SandboxMemoryMiB int64   `name:"sandbox-memory-mib" env:"OVERWINTER_SANDBOX_MEMORY_MIB" placeholder:"N" help:"Memory of a sandbox of the local Modal in MiB. One that exceeds it loses a process or, without control groups, is ended. Default: three quarters of the machine's, which all sandboxes share."`
	SandboxCPUs      float64 `name:"sandbox-cpus" env:"OVERWINTER_SANDBOX_CPUS" placeholder:"N" help:"CPUs of a sandbox of the local Modal, such as 1.5. Default: all, where all sandboxes together have the weight of one other program on each CPU; without control groups, three quarters of the machine's, which all sandboxes share."`
	SandboxDiskMiB   int64   `name:"sandbox-disk-mib" env:"OVERWINTER_SANDBOX_DISK_MIB" placeholder:"N" help:"Disk space in MiB that a sandbox of the local Modal may add to its image. One that exceeds it is ended. Default: 10240."`
	SandboxInodes    int64   `env:"OVERWINTER_SANDBOX_INODES" placeholder:"N" help:"Files, directories and links that a sandbox of the local Modal may add to its image. One that exceeds it is ended. Default: 1000000."`
	DiskReserveMiB   int64   `name:"sandbox-disk-reserve-mib" env:"OVERWINTER_SANDBOX_DISK_RESERVE_MIB" placeholder:"N" help:"Free disk space in MiB below which sandboxes of the local Modal are ended, those that grow most first, and none is started or saved. Default: 1024, at most 5% of the file system."`
	MemoryReserveMiB int64   `name:"sandbox-memory-reserve-mib" env:"OVERWINTER_SANDBOX_MEMORY_RESERVE_MIB" placeholder:"N" help:"Available memory of the machine in MiB below which, without control groups, the largest sandbox of the local Modal is ended. Default: 1024, at most 5% of the memory."`
}

// limits converts the flags to the limits of the local Modal; an error names the bound.
func (f sandboxLimitFlags) limits() (box.Limits, error) {
	l := box.Limits{
		Processes: f.SandboxProcesses, Memory: f.SandboxMemoryMiB << 20, CPUs: f.SandboxCPUs,
		Disk: f.SandboxDiskMiB << 20, Inodes: f.SandboxInodes, Reserve: f.DiskReserveMiB << 20, MemoryReserve: f.MemoryReserveMiB << 20,
	}
	return l, l.Check()
}
