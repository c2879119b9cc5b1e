package box

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/netdevice"
	"github.com/overwinter-dev/overwinter/internal/localmodal/netstack"
)

// buildPackage creates /srv/repo with a package that contains a program, a configuration file, a
// user's directory and a script.
const buildPackage = `set -e
umask 022
mkdir -p /srv/repo /tmp/p/DEBIAN /tmp/p/usr/bin /tmp/p/etc
cat >/tmp/p/DEBIAN/control <<END
Package: overwinter-trial
Version: 1.0
Architecture: all
Maintainer: trial <trial@example.com>
Description: trial
END
printf '#!/bin/sh\nset -e\nmkdir -p /var/lib/trial\nchown nobody:nogroup /var/lib/trial\n' >/tmp/p/DEBIAN/postinst
printf '#!/bin/sh\necho installed\n' >/tmp/p/usr/bin/overwinter-trial
echo configured >/tmp/p/etc/trial.conf
chmod 755 /tmp/p/DEBIAN/postinst /tmp/p/usr/bin/overwinter-trial
dpkg-deb --build --root-owner-group /tmp/p /srv/repo/overwinter-trial_1.0_all.deb
cd /srv/repo
{ dpkg-deb -f overwinter-trial_1.0_all.deb
  echo "Filename: ./overwinter-trial_1.0_all.deb"
  echo "Size: $(stat -c %s overwinter-trial_1.0_all.deb)"
  echo "SHA256: $(sha256sum overwinter-trial_1.0_all.deb | cut -d' ' -f1)"
} >Packages
`

const aptGet = `apt-get -o Dir::Etc::sourcelist=/srv/trial.list -o Dir::Etc::sourceparts=- -o APT::Color=0 `

// requireInstalls skips the test where packages cannot be installed, and logs the reason.
func requireInstalls(t *testing.T, b *bundle, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("this machine has no " + name)
		}
	}
	if !b.rt.Installs() {
		require.Contains(t, b.rt.Lacks(), readOnlyPrograms)
		t.Skip(readOnlyPrograms)
	}
}

func TestPackagesAreInstalledAndKept(t *testing.T) {
	t.Parallel()
	for name, install := range map[string]string{
		"dpkg":    "dpkg -i /srv/repo/overwinter-trial_1.0_all.deb 2>&1",
		"apt-get": "echo 'deb [trusted=yes] file:///srv/repo ./' >/srv/trial.list; " + aptGet + "update 2>&1 && " + aptGet + "install -y overwinter-trial 2>&1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Options{Isolation: Namespaces})
			requireInstalls(t, b, "dpkg-deb", name)
			bx := b.start()
			b.sh(bx, buildPackage)
			out := b.sh(bx, install)
			require.NotContains(t, out, "unsandboxed", "apt becomes its own user")
			const works = "overwinter-trial && cat /etc/trial.conf && stat -c %U /var/lib/trial && dpkg-query -W -f '${Status}\n' overwinter-trial"
			const worked = "installed\nconfigured\nnobody\ninstall ok installed\n"
			require.Equal(t, worked, b.sh(bx, works))
			// The host's programs can be replaced and removed, for this sandbox.
			b.sh(bx, "echo '#!/bin/sh\necho replaced' >/usr/bin/env; rm /usr/bin/nohup; mkdir /usr/local/mine")
			changed := "env; test ! -e /usr/bin/nohup && test -d /usr/local/mine && " + works
			require.Equal(t, "replaced\n"+worked, b.sh(bx, changed))
			require.FileExists(t, "/usr/bin/nohup")
			require.NoFileExists(t, "/usr/bin/overwinter-trial")
			require.NoDirExists(t, "/usr/local/mine")

			saved, _ := b.snapshot(bx)
			woken := b.start(saved)
			require.Equal(t, "replaced\n"+worked, b.sh(woken, changed))
			b.sh(woken, "rm /usr/bin/overwinter-trial; echo '#!/bin/sh\necho again' >/usr/bin/nohup; chmod 755 /usr/bin/nohup")
			const later = "test ! -e /usr/bin/overwinter-trial && nohup && env && cat /etc/trial.conf"
			woken.Kill()
			claimed, merged := uuid.NewString(), uuid.NewString()
			require.NoError(t, b.rt.Claim(t.Context(), woken.id, claimed))
			require.Equal(t, "again\nreplaced\nconfigured\n", b.sh(b.start(claimed, saved), later))
			require.NoError(t, b.rt.Merge(t.Context(), []string{claimed, saved}, merged))
			require.Equal(t, "again\nreplaced\nconfigured\n", b.sh(b.start(merged), later))
			require.Equal(t, "gone\n", b.sh(b.start(), "overwinter-trial 2>/dev/null || echo gone"), "others have none of it")
		})
	}
}

func TestSandboxReadsNoSecretsOfMachine(t *testing.T) {
	t.Parallel()
	onEach(t, ways, func(t *testing.T, b *bundle) {
		bx := b.start()
		require.Equal(t, "gone\n", b.sh(bx, "ls /root/.ssh /home/* /etc/ssh /etc/ssl/private /etc/apt/auth.conf /etc/apt/auth.conf.d 2>/dev/null | grep . || echo gone"))
		people := b.sh(bx, "cut -d: -f3 /etc/passwd")
		for id := range strings.Lines(people) {
			id = strings.TrimSpace(id)
			require.True(t, len(id) < 4 || id == "65534", "uid %s is a person's", id)
		}
		require.Equal(t, "gone\n", b.sh(bx, "ls /etc/shadow /etc/gshadow 2>/dev/null || echo gone"))
	})
	require.Equal(t, "deb https://example.com/debian stable main", string(withoutPasswords("/etc/apt/sources.list", []byte("deb https://me:secret@example.com/debian stable main"))))
}

// TestChangesOfProgramsFollowNoLink uses a layer in which the parents of a host directory are
// links.
func TestChangesOfProgramsFollowNoLink(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Isolation: Namespaces})
	outside := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(outside, "dpkg"), 0o755)) // readable for others
	layer := uuid.NewString()
	require.NoError(t, os.MkdirAll(filepath.Join(b.rt.layerPath(layer), "var"), 0o755))
	require.NoError(t, os.Symlink(outside, filepath.Join(b.rt.layerPath(layer), "var", "lib")))
	require.NoError(t, os.Symlink(outside, filepath.Join(b.rt.layerPath(layer), "usr")))
	for _, target := range []string{"/var/lib/dpkg", "/usr"} {
		found, err := b.rt.layersWith([]string{layer, BaseLayer}, target)
		require.NoError(t, err)
		require.Empty(t, found)
		_, ok, err := b.rt.makeRoom(b.rt.layerPath(layer), target)
		require.NoError(t, err)
		require.False(t, ok)
	}
}

// TestSnapshotOfPreviousVersionIsRestored uses a snapshot of a sandbox on the machine's network with
// read-only programs.
func TestSnapshotOfPreviousVersionIsRestored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before, err := Open(t.Context(), Options{Dir: dir, Isolation: Namespaces, Network: SharedNetwork})
	require.NoError(t, err)
	before.mappable = nil
	require.False(t, before.Installs())
	b := &bundle{t, before}
	bx := b.start()
	b.sh(bx, "echo kept >/root/f; mkdir -p /var/lib/mine; ! touch /usr/mine 2>/dev/null")
	machine := b.sh(bx, "readlink /proc/self/ns/net")
	saved, _ := b.snapshot(bx)
	bx.Kill()
	require.NoError(t, before.Discard(bx.id))
	require.NoError(t, before.Close())

	after, err := Open(t.Context(), Options{Dir: dir, Isolation: Namespaces})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, after.Close()) })
	b = &bundle{t, after}
	woken := b.start(saved)
	require.Equal(t, "kept\n", b.sh(woken, "cat /root/f && test -d /var/lib/mine"))
	require.True(t, after.OwnsNetwork())
	require.NotEqual(t, machine, b.sh(woken, "readlink /proc/self/ns/net"))
	require.Equal(t, netstack.ResolvConf(), b.sh(woken, "cat /etc/resolv.conf"))
	require.Contains(t, b.sh(woken, "getent hosts host.overwinter.internal"), netdevice.HostAddress.String())
	if after.Installs() {
		b.sh(woken, "touch /usr/mine")
		again, _ := b.snapshot(woken)
		require.Equal(t, "kept\n", b.sh(b.start(again, saved), "test -e /usr/mine && cat /root/f"))
	}
}
