package box

import (
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/localmodal/wire"
)

// family returns the current processes of a box.
func (b *Box) family(t *testing.T) (map[int]hostProcess, []int) {
	t.Helper()
	processes, err := hostProcesses()
	require.NoError(t, err)
	return processes, familiesOf(processes, map[int]bool{b.PID(): true})[b.PID()]
}

// Four processes in endless loops get a fifth of a CPU, independent of the load of the machine.
func TestSandboxHasNoMoreTimeThanItsCPUsWithoutControlGroups(t *testing.T) {
	t.Parallel()
	for way, o := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			o.Limits, o.noCgroups = Limits{CPUs: 0.2}, true
			b := setup(t, o)
			other := b.start()
			bx := b.start()
			began := time.Now()
			// The children of the last one are short-lived.
			b.run(bx, `for i in 1 2 3; do (while :; do :; done) & done; while :; do perl -e '$i++ while $i < 100000'; done`)
			var account cpuAccount
			var used time.Duration
			pauses, paused, counts := 0, false, 0
			require.Eventually(t, func() bool {
				if counts++; counts%5 == 0 { // reading all processes of the machine takes longer than the rest
					processes, family := bx.family(t)
					used += account.used(bx.PID(), family, processes)
				}
				b.rt.watchdog.mu.Lock()
				defer b.rt.watchdog.mu.Unlock()
				if now := b.rt.watchdog.boxes[bx].cpu.paused.Load(); now != paused {
					paused = now
					pauses++
				}
				lived := time.Since(began)
				// If other processes use the machine's time, the box never exceeds its limit.
				return lived > 10*time.Second && (pauses >= 4 || lived > 30*time.Second && used < portion(lived, 0.2))
			}, waitLimit, 20*time.Millisecond)
			// Time used before the watchdog's check, and until all processes have stopped, is
			// compensated by later pauses.
			allowed := portion(time.Since(began)+cpuBurst, 0.2) + 3*time.Second
			require.Less(t, used, allowed)
			require.Equal(t, "on\n", b.sh(other, "echo on"))
			require.Equal(t, "on\n", b.sh(bx, "echo on"), "it is slow, and lives")
			require.Nil(t, bx.Exceeded())
			started := time.Now()
			_, _ = b.snapshot(bx)
			require.Less(t, time.Since(started), maxPause, "a snapshot does not wait for the end of a pause")
		})
	}
}

func TestEndedProcessesCountOnce(t *testing.T) {
	t.Parallel()
	second := func(own, children int) cpuTime {
		return cpuTime{time.Duration(own) * time.Second, time.Duration(children) * time.Second}
	}
	var a cpuAccount
	look := func(processes map[int]hostProcess) int {
		var family []int
		for pid := range processes {
			if pid != 1 {
				family = append(family, pid)
			}
		}
		return int(a.used(1, family, processes) / time.Second)
	}
	initial := hostProcess{started: "0", time: second(9, 0)}
	require.Equal(t, 3, look(map[int]hostProcess{1: initial, 2: {started: "1", time: second(1, 0)}, 3: {started: "1", time: second(2, 0)}}), "init is ours")
	require.Equal(t, 1, look(map[int]hostProcess{1: initial, 2: {started: "1", time: second(1, 3)}}), "3 has ended a second later")
	require.Equal(t, 0, look(map[int]hostProcess{1: {started: "0", time: second(9, 4)}}), "init has waited for 2")
	require.Equal(t, 5, look(map[int]hostProcess{1: {started: "0", time: second(9, 4)}, 2: {started: "7", time: second(5, 0)}}))
	require.Equal(t, 2, look(map[int]hostProcess{1: {started: "0", time: second(9, 4)}, 2: {started: "8", time: second(2, 0)}}), "another with its PID; no process waited for the first")
}

func TestSandboxesShareTotalLimits(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 1.5, fairShare([]float64{0.2, 0.3}, 1.5)+0.5, 0.001, "no sandbox needs to be limited")
	require.InDelta(t, 0.75, fairShare([]float64{1, 1}, 1.5), 0.001)
	require.InDelta(t, 1.3, fairShare([]float64{0.2, 1.8}, 1.5), 0.001, "one gets the time that the other leaves unused")
	var a cpuAccount
	require.Zero(t, a.charge(0, time.Second, 0.5))
	require.Zero(t, a.charge(700*time.Millisecond, time.Second, 0.5), "saved up")
	require.Equal(t, time.Second, a.charge(time.Second+50*time.Millisecond, time.Second, 0.5).Round(200*time.Millisecond))
	require.Equal(t, maxPause, a.charge(time.Hour, time.Second, 0.5))
}

// Processes that send each other SIGCONT are stopped nevertheless.
func TestNoProcessOfStoppedSandboxRuns(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"overlay": ways["overlay"], "chroot": ways["chroot"]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, o)
			bx := b.start()
			p := b.exec(bx, wire.ExecSpec{Args: []string{"perl", "-e", `
				$| = 1; my @p;
				for (1..8) { my $pid = fork; if (!$pid) { while (1) { kill 'STOP', $$; my $i = 0; $i++ while $i < 30000 } } push @p, $pid }
				for (1..4) { if (!fork) { while (1) { kill 'CONT', @p; select undef, undef, undef, 0.001 } } }
				print "on\n"; sleep 1000`}, Env: []string{"PATH=" + DefaultPath}})
			_, err := io.ReadFull(p.stdout, make([]byte, 3))
			require.NoError(t, err)
			for range 50 {
				require.NoError(t, bx.whileFrozen(func() error {
					_, before := bx.family(t)
					times := map[int]time.Duration{}
					for range 3 {
						processes, family := bx.family(t)
						require.ElementsMatch(t, before, family)
						for _, pid := range family {
							require.Contains(t, "Tt", processes[pid].state, "process %d runs", pid)
							if used, ok := times[pid]; ok {
								require.Equal(t, used, processes[pid].time.own)
							}
							times[pid] = processes[pid].time.own
						}
					}
					return nil
				}))
			}
		})
	}
}

// A process in vfork, which waits for a child that shares its memory, cannot stop while the child
// is stopped.
func TestProcessBlockedInVforkIsFrozen(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("it calls vfork by the number of amd64")
	}
	for name, o := range map[string]Options{"overlay": ways["overlay"], "chroot": ways["chroot"]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, o)
			bx := b.start()
			// 58 is vfork. The child sleeps instead of executing a program.
			p := b.exec(bx, wire.ExecSpec{Args: []string{"perl", "-e", `
				$| = 1; print "on\n"; my $pid = syscall(58); if ($pid == 0) { sleep 1000 } sleep 1000`}, Env: []string{"PATH=" + DefaultPath}})
			_, err := io.ReadFull(p.stdout, make([]byte, 3))
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				processes, family := bx.family(t)
				for _, pid := range family {
					if processes[pid].state == "D" {
						return true
					}
				}
				return false
			}, waitLimit, time.Millisecond)
			_, _ = b.snapshot(bx)
		})
	}
}
