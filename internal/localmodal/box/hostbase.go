package box

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/hostports"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// BaseLayer is the bottom layer of every root: this machine's programs on an otherwise private and
// empty file system, so that an image needs neither a registry nor a download. It is not simply
// lowerdir=/, because in a user namespace the kernel does not accept a mount with locked children
// as a layer.
const BaseLayer = "base"

var (
	// Directories of programs, which every sandbox sees read-only.
	programs = []string{"/usr", "/opt", "/nix", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

	baseDirs = []string{
		"dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "usr",
		"var/cache/apt/archives/partial", "var/cache/debconf", "var/lib/apt/lists/partial", "var/lib/dpkg", "var/lib/pam", "var/log/apt", "var/tmp",
	}

	// Not all of /etc, which contains the host's secrets. Programs below /usr cannot work without
	// these files.
	baseConfig = []string{
		"adduser.conf", "alternatives", "apt/apt.conf.d", "apt/keyrings", "apt/preferences.d", "apt/sources.list", "apt/sources.list.d",
		"apt/trusted.gpg.d", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debconf.conf", "debian_version", "dpkg", "fonts", "java-17-openjdk",
		"java-21-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "login.defs", "mime.types", "nsswitch.conf", "os-release", "pam.conf", "pam.d",
		"perl", "pki/tls/certs", "profile", "protocols", "python3", "services", "shells", "skel", "ssl/certs", "ssl/openssl.cnf", "terminfo",
	}

	baseFiles = map[string]string{
		"etc/hostname": "modal\n",
		// While the name server is frozen, the resolver must time out before connections do.
		"etc/hosts":       "127.0.0.1\tlocalhost\n::1\tlocalhost\n" + netdevice.HostAddress.String() + "\t" + hostports.Name + "\n",
		"etc/resolv.conf": "", // mount point for the host's file
	}
)

// buildHostBase rebuilds the base layer, so that it matches the machine. No overlay uses it yet.
func (r *Runtime) buildHostBase(ctx context.Context) error {
	building := r.buildPlace()
	err := fillHostBase(ctx, building)
	if err == nil && r.ids.count > 0 {
		err = shiftTree(building, r.ids.shifted)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make base image: %w", err), os.RemoveAll(building))
	}
	final := r.layerPath(BaseLayer)
	if err := r.trash.discard(final); err != nil {
		return err
	}
	if err := os.Rename(building, final); err != nil {
		return fmt.Errorf("make base image: %w", err)
	}
	r.hostMounts = nil
	for _, dir := range programs {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			r.hostMounts = append(r.hostMounts, wire.Mount{Source: dir, Target: dir, ReadOnly: true})
		}
	}
	if info, err := os.Lstat(packageData); err == nil && info.IsDir() {
		r.hostMounts = append(r.hostMounts, wire.Mount{Source: packageData, Target: packageData, ReadOnly: true})
	}
	return nil
}

func fillHostBase(ctx context.Context, root string) error {
	for _, d := range baseDirs {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"tmp", "var/tmp"} {
		if err := os.Chmod(filepath.Join(root, d), 0o777|fs.ModeSticky); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "root"), 0o700); err != nil {
		return err
	}
	accounts, err := systemAccounts()
	if err != nil {
		return err
	}
	maps.Copy(accounts, baseFiles)
	for name, content := range accounts {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	for _, name := range baseConfig {
		if err := copyConfig(ctx, filepath.Join("/etc", name), filepath.Join(root, "etc", name)); err != nil {
			return err
		}
	}
	for _, dir := range programs { // /bin and similar paths are links on most machines
		target, err := os.Readlink(dir)
		if err != nil {
			continue
		}
		if err := os.Symlink(target, filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	return nil
}

// firstPerson is the first user id that Debian and other distributions assign to people.
const firstPerson = 1000

// systemAccounts returns the accounts of this machine that packages refer to, without accounts of
// people and without passwords.
func systemAccounts() (map[string]string, error) {
	files := map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\n", "etc/group": "root:x:0:\n",
	}
	defaults := map[string]string{
		"passwd": "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n", "group": "tty:x:5:\nnogroup:x:65534:\n",
	}
	for _, name := range []string{"passwd", "group"} {
		content, err := os.ReadFile(filepath.Join("/etc", name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
		seen := map[string]bool{"root": true}
		for line := range strings.Lines(string(content) + defaults[name]) {
			fields := strings.Split(strings.TrimSpace(line), ":")
			if len(fields) < 4 || seen[fields[0]] {
				continue
			}
			id, err := strconv.Atoi(fields[2])
			if err != nil || id >= firstPerson && id != 65534 {
				continue
			}
			seen[fields[0]] = true
			if fields[1] = "x"; name == "group" {
				fields[3] = "" // members of the group
			}
			files["etc/"+name] += strings.Join(fields, ":") + "\n"
		}
	}
	return files, nil
}

// copyConfig copies the files that exist and are readable. Unreadable files are not meant for
// sandboxes.
func copyConfig(ctx context.Context, src, dst string) error {
	info, err := os.Stat(src) // follows links, such as localtime
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	if info.IsDir() {
		return copyReadable(ctx, src, dst)
	}
	b, err := os.ReadFile(src)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(dst, withoutPasswords(src, b), info.Mode().Perm()|0o400)
}

// inURL matches a user name and a password in a URL.
var inURL = regexp.MustCompile(`://[^/\s@]+@`)

// withoutPasswords removes passwords from URLs in the configuration of apt.
func withoutPasswords(path string, content []byte) []byte {
	if !strings.HasPrefix(path, "/etc/apt/") {
		return content
	}
	return inURL.ReplaceAll(content, []byte("://"))
}

// copyReadable copies files and links whose names and content every user may read. The copies
// belong to us, regardless of the originals' owners.
func copyReadable(ctx context.Context, src, dst string) error {
	return filepath.WalkDir(src, func(path string, entry fs.DirEntry, err error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		info, err := entry.Info()
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			return os.MkdirAll(to, 0o755)
		case info.Mode()&fs.ModeSymlink != 0 && strings.HasSuffix(rel, ".gz"):
			return nil // alternatives of manual pages: most of all alternatives, and of all files of the base
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(target, to)
		case info.Mode().IsRegular() && info.Mode()&0o004 != 0:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(to, withoutPasswords(path, b), info.Mode().Perm()|0o400)
		}
		return nil
	})
}

// resolverMounts makes a sandbox on the host's network resolve names like the host.
func resolverMounts() []wire.Mount {
	var mounts []wire.Mount
	for _, path := range []string{"/etc/resolv.conf", "/etc/hosts"} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			mounts = append(mounts, wire.Mount{Source: path, Target: path, ReadOnly: true})
		}
	}
	return mounts
}
