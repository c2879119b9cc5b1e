package filetools

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// fileInfo describes a file in the SDK's format.
type fileInfo struct {
	Name          string  `json:"name"`
	Path          string  `json:"path"`
	Type          string  `json:"type"` // file, directory or symlink
	Size          int64   `json:"size"` // bytes
	Mode          uint32  `json:"mode"` // permission bits
	Permissions   string  `json:"permissions"`
	Owner         string  `json:"owner"`
	Group         string  `json:"group"`
	ModifiedTime  float64 `json:"modified_time"` // seconds since 1970
	SymlinkTarget *string `json:"symlink_target"`
}

func describe(path string) (fileInfo, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return fileInfo{}, err
	}
	info := fileInfo{
		Name: filepath.Base(path), Path: path, Type: "file", Size: st.Size(), Mode: uint32(st.Mode().Perm()),
		Permissions: st.Mode().String(), ModifiedTime: float64(st.ModTime().UnixNano()) / 1e9,
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		info.Owner, info.Group = ownerName(sys.Uid), groupName(sys.Gid)
	}
	switch {
	case st.IsDir():
		info.Type = "directory"
	case st.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err != nil {
			return fileInfo{}, err
		}
		info.Type, info.SymlinkTarget = "symlink", &target
	}
	return info, nil
}

func ownerName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

func groupName(gid uint32) string {
	id := strconv.FormatUint(uint64(gid), 10)
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}

func stat(path string, out io.Writer) error {
	info, err := describe(path)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(info)
}

func listFiles(path string, out io.Writer) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	files := make([]fileInfo, 0, len(entries))
	for _, e := range entries {
		info, err := describe(filepath.Join(path, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the directory was read
		}
		if err != nil {
			return err
		}
		files = append(files, info)
	}
	return json.NewEncoder(out).Encode(files)
}
