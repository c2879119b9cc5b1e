package box

import (
	"fmt"
	"os"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// Isolation is the way sandboxes are separated from the host and each other.
type Isolation string

// The levels, best first.
const (
	// Namespaces gives each sandbox its own user, mount, PID, IPC, UTS and network namespaces.
	Namespaces Isolation = wire.LevelNamespaces
	// Chroot gives each sandbox its own root directory, in a mount namespace; it shares processes
	// and everything else with the machine.
	Chroot Isolation = wire.LevelChroot
	// Directory uses a plain directory, which a tracer presents to the sandbox's processes as their
	// root by translating the paths in their system calls.
	Directory Isolation = wire.LevelDirectory
)

// Auto means namespaces or, in a container, the best level that works.
const Auto Isolation = "auto"

// Levels returns all levels, best first.
func Levels() []Isolation { return []Isolation{Namespaces, Chroot, Directory} }

// ParseIsolation parses a level or Auto, which is also the meaning of the empty string.
func ParseIsolation(text string) (Isolation, error) {
	if text == "" || text == string(Auto) {
		return Auto, nil
	}
	names := []string{string(Auto)}
	for _, l := range Levels() {
		if text == string(l) {
			return l, nil
		}
		names = append(names, string(l))
	}
	return "", fmt.Errorf("isolation %q is unknown: it is one of %s", text, strings.Join(names, ", "))
}

// Ability is a feature that some levels lack.
type Ability string

// The abilities that a level may lack.
const (
	// HiddenProcesses: a sandbox sees only its own processes.
	HiddenProcesses Ability = "hidden processes"
	// BlockedNetwork: a sandbox can be started without a network.
	BlockedNetwork Ability = "blocked network"
	// OwnHostname: a sandbox has its own host name.
	OwnHostname Ability = "own host name"
	// OwnRoot: a sandbox's user is root, with the power of root over its files.
	OwnRoot Ability = "own root user"
	// hiddenFiles: a process has no way to see the machine's other files.
	hiddenFiles Ability = "hidden files"
	// debuggers: ptrace works in a sandbox.
	debuggers Ability = "debuggers"
	// OwnNetwork: a sandbox cannot reach services that listen only on this machine's loopback
	// interface.
	OwnNetwork Ability = "own network"
	// SeparateSandboxes: a sandbox cannot reach the processes and files of another.
	SeparateSandboxes Ability = "separate sandboxes"
	// PrivateIDs: no file of a sandbox belongs to a user of the machine.
	PrivateIDs Ability = "private ids"
	// SystemPackages: apt-get and dpkg can install packages in a sandbox.
	SystemPackages Ability = "system packages"
	// Boundary: a hostile program cannot leave its sandbox.
	Boundary Ability = "boundary"
)

var sharedNetwork = Lack{OwnNetwork, "a sandbox shares the machine's network: what listens on loopback, and abstract sockets"}

var rootsIDs = Lack{PrivateIDs, "a sandbox's root is the machine's root: its set-user-ID programs are effective; only the private data directory hides them"}

var readOnlyPrograms = Lack{SystemPackages, "the machine's programs are read-only: changing them for one sandbox takes namespaces, overlays, idmapped mounts and a server that runs as root"}

// Lack is an ability that a level does not have, and the reason.
type Lack struct {
	Ability Ability
	Reason  string
}

func (l Lack) String() string { return string(l.Ability) + ": " + l.Reason }

// Lacks returns the abilities of the best level that a level does not have.
func (i Isolation) Lacks() []Lack {
	switch i {
	case Chroot:
		lacks := []Lack{
			sharedNetwork,
			{HiddenProcesses, "without a PID namespace a sandbox sees the machine's processes, and can signal those of the same user"},
			{BlockedNetwork, "only a full set of namespaces has a network that can be left empty"},
			{OwnHostname, "without a UTS namespace the host name is the machine's"},
		}
		if os.Geteuid() == 0 {
			lacks = append(lacks, rootsIDs, Lack{SeparateSandboxes, "without user namespaces all sandboxes are one user, and look into each other's processes and files"})
		}
		return lacks
	case Directory:
		lacks := []Lack{
			{Boundary, "only paths are translated: a malicious program can act as the user of the server"},
			{SeparateSandboxes, "all sandboxes are the user of the server"},
			sharedNetwork,
			{HiddenProcesses, "without a PID namespace a sandbox sees the machine's processes, and can signal those of the same user"},
			{BlockedNetwork, "only a full set of namespaces has a network that can be left empty"},
			{OwnHostname, "without a UTS namespace the host name is the machine's"},
			{OwnRoot, "without a user namespace a sandbox's user is the user of the server"},
			{hiddenFiles, "paths are translated, not taken away: a malicious program can reach the machine's files"},
			{debuggers, "a process has one tracer, and that is the sandbox's"},
		}
		if os.Geteuid() == 0 {
			lacks = append(lacks, rootsIDs)
		}
		return lacks
	default:
		return nil // but see Runtime.Lacks
	}
}

// lack reports whether the level lacks the ability, and why.
func (i Isolation) lack(a Ability) (Lack, bool) {
	for _, l := range i.Lacks() {
		if l.Ability == a {
			return l, true
		}
	}
	return Lack{}, false
}

// LackError is returned for a request that the level cannot satisfy.
type LackError struct {
	Isolation Isolation
	Lack      Lack
}

func (e *LackError) Error() string {
	return fmt.Sprintf("isolation %q has no %s", e.Isolation, e.Lack)
}

// require returns a *LackError if the level lacks the ability.
func (i Isolation) require(a Ability) error {
	if l, lacking := i.lack(a); lacking {
		return &LackError{Isolation: i, Lack: l}
	}
	return nil
}
