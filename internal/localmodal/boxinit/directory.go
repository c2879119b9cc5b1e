package boxinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/overwinter-dev/overwinter/internal/localmodal/tracer"
	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// directory is a directory that only the sandbox's own processes see as their root.
type directory struct {
	view   *tracer.View
	tracer *tracer.Tracer
	base   string // directory of mounted images

	mu     sync.Mutex
	images map[string]string // mount point of each image, by its directory
}

// openDirectory makes a tree the root of the processes of p. The process that serves them keeps its
// own.
func openDirectory(p *initProcess, spec wire.RootSpec) (*directory, error) {
	tree := filepath.Join(spec.Box.Path, "tree")
	base := spec.Box.Path
	shared := filepath.Join(base, "shm")
	if err := os.Mkdir(shared, 0o700); err != nil {
		return nil, fmt.Errorf("make shared memory: %w", err)
	}
	if err := os.Chdir(tree); err != nil { // so that the tree has a short name
		return nil, err
	}
	mappings := []tracer.Mapping{
		{Inside: "/proc", Outside: "/proc", Access: tracer.Fixed},
		{Inside: "/sys", Outside: "/sys", Access: tracer.ReadOnly},
		{Inside: "/dev", Outside: "/dev", Access: tracer.Fixed},
		{Inside: "/dev/shm", Outside: shared},
	}
	for _, path := range masked {
		mappings = append(mappings, tracer.Mapping{Inside: path, Outside: path, Access: tracer.ReadOnly})
	}
	d := &directory{base: base, images: map[string]string{}}
	d.view = tracer.NewView(tree, "/proc/"+strconv.Itoa(os.Getpid())+"/cwd", mappings...)
	for _, m := range spec.Mounts {
		if _, err := d.mount(m); err != nil {
			return nil, err
		}
	}
	var err error
	d.tracer, err = tracer.New(d.view, p.exited)
	return d, err
}

// mount shows m and returns the mount point, free of links.
func (d *directory) mount(m wire.Mount) (string, error) {
	source := filepath.Join(m.Source, m.Sub)
	info, err := os.Stat(source)
	if err != nil {
		return "", fmt.Errorf("mount %s: %w", m.Target, err)
	}
	point, err := d.outside(m.Target)
	if err != nil {
		return "", err
	}
	if err := mountPoint(point, info.IsDir()); err != nil {
		return "", fmt.Errorf("mount %s: %w", m.Target, err)
	}
	inside, ok := d.view.Inside(filepath.Clean(point))
	if !ok {
		return "", fmt.Errorf("mount %s: it leads outside", m.Target)
	}
	mapping := tracer.Mapping{Inside: inside, Outside: source}
	if m.ReadOnly {
		mapping.Access = tracer.ReadOnly
	}
	d.view.Map(mapping)
	return inside, nil
}

// outside returns the real location of a path of the sandbox.
func (d *directory) outside(inside string) (string, error) {
	place, err := d.view.Resolve(inside, true, tracer.Process{Group: os.Getpid(), Thread: os.Getpid()})
	if err != nil {
		return "", fmt.Errorf("find %s: %w", inside, err)
	}
	return place.Outside, nil
}

// start executes a program of the sandbox.
func (d *directory) start(path string, args []string, attr *syscall.ProcAttr, after func(pid int)) error {
	program := path
	if path != self {
		outside, err := d.outside(path)
		if err != nil {
			return err
		}
		var words []string
		program, words, err = d.view.Script(outside, path, tracer.Process{Group: os.Getpid(), Thread: os.Getpid()})
		if err != nil {
			return fmt.Errorf("exec %s: %w", path, err)
		}
		if words != nil {
			args = append(words, args[1:]...)
		}
	}
	return d.tracer.Start(program, args, attr, after)
}

// mountImage shows a fresh directory at path, filled from the tar stream in
// files[0] if there is one.
func (d *directory) mountImage(path string, files []*os.File) error {
	dir, err := os.MkdirTemp(d.base, "image-*")
	if err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // like the root of a mounted file system
		return fmt.Errorf("mount %s: %w", path, err)
	}
	if len(files) > 0 {
		if err := extract(files[0], dir); err != nil {
			return errors.Join(fmt.Errorf("fill %s: %w", path, err), os.RemoveAll(dir))
		}
	}
	inside, err := d.mount(wire.Mount{Source: dir, Target: path})
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.images[dir] = inside
	return nil
}

func (d *directory) unmountImage(path string) error {
	dir, err := d.outside(path)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	inside, ok := d.images[filepath.Clean(dir)]
	if !ok {
		return fmt.Errorf("unmount %s: %w", path, syscall.EINVAL)
	}
	d.view.Unmap(inside)
	delete(d.images, filepath.Clean(dir))
	return os.RemoveAll(dir)
}
