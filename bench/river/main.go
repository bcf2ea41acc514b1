// A worker on River (https://riverqueue.com) whose jobs do nothing, for question 18 of the bench.
//
//	worker migrate CONNINFO   makes River's tables
//	worker work CONNINFO      works jobs until SIGTERM, then prints one line of JSON
//
// The line has the number of jobs, and how long they waited: from created_at, which the database has set at the insert, to the
// call of Work, in ms. "ready" on a line of its own tells that River has started.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// River as quick as the relay's default `latency: 5ms`. Notifications of inserts start a fetch at once, but no sooner than
// fetchCooldown after the one before; without a notification, River looks each fetchPollInterval.
const (
	fetchCooldown     = 5 * time.Millisecond
	fetchPollInterval = 100 * time.Millisecond
	maxWorkers        = 100 // 20 times as many jobs as come within fetchCooldown
)

type benchArgs struct {
	Note string `json:"note"`
}

func (benchArgs) Kind() string { return "bench" }

type benchWorker struct {
	river.WorkerDefaults[benchArgs]
	mutex sync.Mutex
	waits []time.Duration
}

func (worker *benchWorker) Work(_ context.Context, job *river.Job[benchArgs]) error {
	wait := time.Since(job.CreatedAt)
	worker.mutex.Lock()
	defer worker.mutex.Unlock()
	worker.waits = append(worker.waits, wait)
	return nil
}

type report struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
}

func (worker *benchWorker) report() report {
	worker.mutex.Lock()
	defer worker.mutex.Unlock()
	slices.Sort(worker.waits)
	return report{len(worker.waits), worker.percentile(0.5), worker.percentile(0.99), worker.percentile(0.999)}
}

// percentile expects sorted waits.
func (worker *benchWorker) percentile(share float64) float64 {
	if len(worker.waits) == 0 {
		return 0
	}
	at := min(int(share*float64(len(worker.waits))), len(worker.waits)-1)
	return float64(worker.waits[at].Microseconds()) / 1000
}

func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func work(ctx context.Context, pool *pgxpool.Pool) error {
	worker := &benchWorker{}
	workers := river.NewWorkers()
	river.AddWorker(workers, worker)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     fetchCooldown,
		FetchPollInterval: fetchPollInterval,
		Logger:            slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}},
		Workers:           workers,
	})
	if err != nil {
		return err
	}
	stopped, forget := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer forget()
	if err := client.Start(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	<-stopped.Done()
	if err := client.Stop(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(worker.report())
}

func run(ctx context.Context, arguments []string) error {
	commands := map[string]func(context.Context, *pgxpool.Pool) error{"migrate": migrate, "work": work}
	if len(arguments) != 2 || commands[arguments[0]] == nil {
		return errors.New("usage: worker migrate|work CONNINFO")
	}
	pool, err := pgxpool.New(ctx, arguments[1])
	if err != nil {
		return err
	}
	defer pool.Close()
	return commands[arguments[0]](ctx, pool)
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}
