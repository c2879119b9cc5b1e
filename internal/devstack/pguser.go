package devstack

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// pgUser is the user that Postgres runs as.
type pgUser struct {
	name       string
	credential *syscall.Credential // nil for the user of this process
}

// choosePGUser returns this user, except for root, which Postgres refuses: then it returns the
// owner of the directory if it exists, else the user postgres, else the user nobody.
func choosePGUser(directory string) (pgUser, error) {
	owner, exists, err := ownerOf(directory)
	if err != nil {
		return pgUser{}, err
	}
	uid := os.Geteuid()
	if uid != 0 {
		if exists && int(owner.Uid) != uid {
			return pgUser{}, fmt.Errorf("%s belongs to another user (id %d): run as that user, or choose another --data-dir", directory, owner.Uid)
		}
		return pgUser{}, nil
	}
	if exists && owner.Uid != 0 {
		name := strconv.Itoa(int(owner.Uid))
		if known, err := user.LookupId(name); err == nil {
			name = known.Username
		}
		return pgUser{name: name, credential: owner}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		id, errUID := strconv.ParseUint(found.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(found.Gid, 10, 32)
		if errUID == nil && errGID == nil {
			return pgUser{name: name, credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(gid)}}, nil
		}
	}
	return pgUser{}, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody: run as another user")
}

func ownerOf(path string) (_ *syscall.Credential, exists bool, _ error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look at %s: %w", path, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, false, fmt.Errorf("look at %s: no owner", path)
	}
	return &syscall.Credential{Uid: stat.Uid, Gid: stat.Gid}, true, nil
}

// own changes the owner of a directory to the user.
func (u pgUser) own(directory string) error {
	if u.credential == nil {
		return nil
	}
	if err := os.Chown(directory, int(u.credential.Uid), int(u.credential.Gid)); err != nil {
		return fmt.Errorf("give %s to %s: %w", directory, u.name, err)
	}
	return nil
}

// checkReach returns an error for the user if pgUser cannot traverse a directory on the way to
// path.
func (u pgUser) checkReach(path string) error {
	if u.credential == nil {
		return nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("look at %s: %w", dir, err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("look at %s: no owner", dir)
		}
		search := os.FileMode(0o001)
		switch {
		case stat.Uid == u.credential.Uid:
			search = 0o100
		case stat.Gid == u.credential.Gid:
			search = 0o010
		}
		if info.Mode()&search == 0 {
			return fmt.Errorf("PostgreSQL runs as user %s here, who may not enter %s: choose a --data-dir elsewhere, or run chmod o+x %s", u.name, dir, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
