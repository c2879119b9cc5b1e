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
	// firstID is what root and every other user of a sandbox are shifted by on the
	// machine, where the server is root. The range lies above those that systemd and
	// the shadow tools give out.
	firstID = 0x70000000
	// countIDs is how many users and groups a sandbox has.
	countIDs = 65536
)

// idRange is where the users and groups of sandboxes lie on this machine: files of a
// sandbox, in its layers too, belong to those, so that a set-user-ID file or a file
// with capabilities means nothing outside. The zero value shifts nothing: an
// ordinary user's sandbox has one user, who is that user.
type idRange struct{ first, count uint32 }

// shifted is the id that a sandbox's id is stored as. It changes nothing that is
// shifted already, which makes it safe to apply again.
func (r idRange) shifted(id uint32) uint32 {
	if id < r.count {
		return id + r.first
	}
	return id
}

// plain undoes shifted, for levels that have no user namespace.
func (r idRange) plain(id uint32) uint32 {
	if r.holds(id) {
		return id - r.first
	}
	return id
}

// holds reports whether the id lies in the range. Without a range none does.
func (r idRange) holds(id uint32) bool { return id >= r.first && id-r.first < r.count }

func same(id uint32) uint32 { return id }

// mapInto starts a process as root of a user namespace that has the range.
func (r idRange) mapInto(attr *syscall.SysProcAttr) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(r.first), Size: int(r.count)}}
	attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = ids, ids, true
	attr.Credential = &syscall.Credential{} // else it stays who we are, which means nothing there
}

// chooseIDs returns the range for sandboxes of a server that runs as root. In a
// container with few ids there may be none; the error says so.
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

// treeOwner is who owns a copied root's file in a box that the layer gives to id.
func (r *Runtime) treeOwner() func(uint32) uint32 {
	if r.isolation == Namespaces {
		return same
	}
	return r.ids.plain
}
