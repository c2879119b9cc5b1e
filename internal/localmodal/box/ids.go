package box

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

const (
	// firstID is the offset of the ids of a sandbox on the machine if the server runs as root. The
	// range lies above those that systemd and the shadow tools assign.
	firstID = 0x70000000
	// countIDs is the number of users and groups of a sandbox.
	countIDs = 65536
)

// idRange is the range of users and groups of sandboxes on this machine. Files of a sandbox,
// including its layers, belong to these ids, so that a set-user-ID file or a file with capabilities
// has no power outside. The zero value shifts nothing: an ordinary user's sandbox has one user, who
// is that user.
type idRange struct{ first, count uint32 }

// shifted returns the id as which a sandbox's id is stored. It does not change an id that is
// already shifted, so it is safe to apply it again.
func (r idRange) shifted(id uint32) uint32 {
	if id < r.count {
		return id + r.first
	}
	return id
}

// plain reverses shifted, for levels without a user namespace.
func (r idRange) plain(id uint32) uint32 {
	if r.holds(id) {
		return id - r.first
	}
	return id
}

// holds reports whether the id is in the range; false without a range.
func (r idRange) holds(id uint32) bool { return id >= r.first && id-r.first < r.count }

func same(id uint32) uint32 { return id }

// mapInto makes attr start a process as root of a user namespace with the range.
func (r idRange) mapInto(attr *syscall.SysProcAttr) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(r.first), Size: int(r.count)}}
	attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = ids, ids, true
	attr.Credential = &syscall.Credential{} // otherwise it would keep our id, which is not mapped there
}

// chooseIDs returns the range for sandboxes of a server that runs as root. It returns an error in a
// container with too few ids.
func chooseIDs() (idRange, error) {
	if os.Geteuid() != 0 {
		return idRange{}, nil
	}
	for _, file := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		if err := requireMapped(file); err != nil {
			return idRange{}, err
		}
	}
	return idRange{first: firstID, count: countIDs}, nil
}

func requireMapped(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read ids: %w", err)
	}
	defer f.Close()
	var parts []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var inside, outside, count uint64
		if _, err := fmt.Sscan(lines.Text(), &inside, &outside, &count); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if inside <= firstID && inside+count >= firstID+countIDs {
			return nil
		}
		parts = append(parts, fmt.Sprintf("%d-%d", inside, inside+count-1))
	}
	return fmt.Errorf("%w: sandboxes of root need the ids %d-%d, and this user namespace has %s",
		errNoIDs, uint32(firstID), uint32(firstID+countIDs-1), strings.Join(parts, ", "))
}

var errNoIDs = errors.New("not enough user ids")

// treeOwner returns a function that maps the owner of a file in a layer to its owner in a box's
// copied root.
func (r *Runtime) treeOwner() func(uint32) uint32 {
	if r.isolation == Namespaces {
		return same
	}
	return r.ids.plain
}
