// A program with Go's database/sql over Arrow Flight SQL: HOST PORT TOKEN ROWS PARAMETERS ERROR SLOW, the last four SQL.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"strings"

	_ "github.com/apache/arrow-go/v18/arrow/flight/flightsql/driver"
)

func main() {
	host, port, token := os.Args[1], os.Args[2], os.Args[3]
	db, err := sql.Open("flightsql", fmt.Sprintf("flightsql://%s:%s?token=%s&tls=disabled", host, port, token))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	background := context.Background()
	if err := printRows(background, db, "row", os.Args[4]); err != nil {
		log.Fatal(err)
	}
	if err := printRows(background, db, "parameters", os.Args[5], "it's", int64(1_700_000_000_000_000_001)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("error\t" + line(printRows(background, db, "no error", os.Args[6])))

	cancellable, cancel := context.WithCancel(background)
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		cancel()
	}()
	fmt.Println("cancelled\t" + line(printRows(cancellable, db, "not cancelled", os.Args[7])))
}

func printRows(ctx context.Context, db *sql.DB, what string, statement string, values ...any) error {
	rows, err := db.QueryContext(ctx, statement, values...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		var number int64
		if err := rows.Scan(&text, &number); err != nil {
			return err
		}
		fmt.Printf("%s\t%s\t%d\n", what, text, number)
	}
	return rows.Err()
}

func line(err error) string {
	return strings.ReplaceAll(fmt.Sprint(err), "\n", " ")
}
