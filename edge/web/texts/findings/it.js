// Italian texts of the findings of the examination, by code: state, reason, remedy, and what the safe fix has done.
// The English ones come from the gateway.
const WAITS = "{count} osservazioni ({megabytes} MB) aspettano lo storico";
const OFFLOAD = "`edge outbox status` mostra il motivo; vedi docs/offload.md";
const BROKER = "non arrivano misure; un broker con persistenza conserva quelle con QoS 1 e 2";
const WORN = "una scheda consumata diventa di sola lettura o perde dati; conserva i backup altrove";
const REPLACE = "fai un backup (`edge backup`) e sostituisci la scheda; quelle durevoli sono in docs/operations.md";
const WRITES = "una scheda si consuma dopo circa 10-100 TB";
const WRITER = "trova il programma che scrive (`iotop -ao`): log, swap; per il gateway `edge bench wear` e docs/operations.md";
const EXPIRED = "da allora i client, o il gateway stesso, rifiutano le connessioni";
const NO_CONNECTION = "nessun client può connettersi così";
const AUTHORITY = "spostalo, esegui `edge cert init` e distribuisci quello nuovo ai client";
const FILE = "sostituiscilo con uno rinnovato";
const CLOCK = "le misure ricevono orari sbagliati, token e certificati scadono nel momento sbagliato, gli aggiornamenti con `at` vengono eseguiti all'ora sbagliata";
const TIME_SERVER = "controlla che la macchina raggiunga un server dell'ora: `timedatectl`, `systemctl status systemd-timesyncd`";
const FREE = "sono liberi {free} MB su {total} GB";
const SPACE = "libera spazio: vecchi log (`journalctl --vacuum-size=50M`), pacchetti (`apt clean`), DATA_DIR.before-restore";
const MEMORY = "senza memoria libera il kernel termina un processo, probabilmente il gateway se è il più grande";
const PROCESSES = "trova i processi più grandi (`ps aux --sort=-rss | head`); terminane uno o usa una macchina con più memoria";
const GAP = "i grafici hanno lì una lacuna; tutti gli altri valori sono completi";
const RESTORE = "ripristina un backup (edge restore) o eliminali: sono in {directory}";
const HEAT = "una macchina calda è più lenta, e il calore accorcia la vita della sua scheda";
const AIR = "migliora il raffreddamento: flusso d'aria, dissipatore o ventola; evita il sole diretto";
const POWER = "le macchine con poca alimentazione si bloccano e danneggiano i dati sulla scheda";
const SUPPLY = "usa l'alimentatore del produttore, un cavo corto e un hub USB alimentato";
const ENDED = "esecuzioni dell'ultimo giorno non terminate normalmente: {count}; l'ultima: ";
const DOWNTIME = "durante un'interruzione le misure vanno perse o aspettano presso il broker";
const OWN = "il certificato del gateway", ISSUER = "il certificato dell'autorità", UNTIL = "({file}) è valido fino al {date}";

export const FINDINGS = {
  "check.failed": ["questo controllo è fallito: {reason}"],
  "backlog.unknown": ["gli arretrati non sono noti"],
  "backlog.full": ["{count} aggiornamenti aspettano, al massimo {limit}", "oltre il limite gli aggiornamenti vengono rifiutati", "`edge engine` mostra il costo degli aggiornamenti, `edge explain` quello di una sottoscrizione; oppure invia di meno"],
  "backlog.updates": ["{count} aggiornamenti aspettano"],
  "backlog.dropped": ["{count} osservazioni sono perse per lo storico", "la coda in uscita era piena", OFFLOAD],
  "backlog.not_shipped": ["non viene trasferito nulla: {reason}", `${WAITS}; quando la coda è piena vengono scartate`, OFFLOAD],
  "backlog.outbox_full": [`${WAITS}, al massimo {limit} MB`, "oltre il limite le più vecchie vengono scartate, o gli aggiornamenti falliscono", OFFLOAD],
  "backlog.old": [`${WAITS}, la più vecchia da {days} giorni`, "lo storico non le ha ancora", OFFLOAD],
  "backlog.outbox": [WAITS],
  "broker.off": ["MQTT è disattivato (mqtt.enabled)"],
  "broker.embedded": ["quello incorporato; non conserva nulla mentre il gateway è fermo (docs/durability.md)"],
  "broker.connected": ["il gateway è connesso a {broker}"],
  "broker.not_subscribed": ["{broker} non ha accettato le sottoscrizioni a tutti i topic di mqtt.topics", "le misure di quelli rifiutati non arrivano", "permetti all'utente del gateway di sottoscrivere mqtt.topics nel controllo degli accessi del broker; il log ha i filtri rifiutati (`journalctl -u edge | grep subscription_refused`)"],
  "broker.unreachable": ["{broker} non è raggiungibile: {reason}", BROKER, "controlla che il broker sia in funzione, e host e porta in mqtt.broker; il gateway si riconnette"],
  "broker.unknown": ["{broker} accetta connessioni; non si sa se il gateway è connesso"],
  "broker.not_connected": ["{broker} accetta connessioni, ma il gateway non è connesso", BROKER, "il log ha il motivo (`journalctl -u edge | grep mqtt`): nome utente, password, certificato, o un altro client con lo stesso nome"],
  "card.unknown": ["il kernel non ha dati sul disco della cartella dei dati"],
  "card.used": ["{disk}: al massimo {percent} % della sua vita è consumato", WORN, REPLACE],
  "card.used_up": ["{disk}: tutta la sua vita è consumata", WORN, REPLACE],
  "card.reserve": ["{disk}: {percent} % dei blocchi di riserva è usato", WORN, REPLACE],
  "card.no_estimate": ["{disk} non segnala il suo consumo, e la macchina è accesa da troppo poco per una stima"],
  "card.written": ["{disk}: si scrivono {gigabytes} GB al giorno", WRITES, WRITER],
  "card.written_own": ["{disk}: si scrivono {gigabytes} GB al giorno; il gateway ha scritto {own} MB su {written} MB", WRITES, WRITER],
  "certificates.none": ["nessuno è in uso"],
  "certificates.refused_own": [`${OWN}: {reason}`, NO_CONNECTION, "edge cert init"],
  "certificates.refused_authority": [`${ISSUER}: {reason}`, NO_CONNECTION, AUTHORITY],
  "certificates.refused_file": ["{setting}: {reason}", NO_CONNECTION, FILE],
  "certificates.expired_own": [`${OWN} ${UNTIL}`, EXPIRED, "controlla l'orologio; poi: edge cert init"],
  "certificates.expired_authority": [`${ISSUER} ${UNTIL}`, EXPIRED, `controlla l'orologio; poi: ${AUTHORITY}`],
  "certificates.expired_file": [`{setting} ${UNTIL}`, EXPIRED, `controlla l'orologio; poi: ${FILE}`],
  "certificates.valid_own": [`${OWN} ${UNTIL}`, EXPIRED, "edge cert init"],
  "certificates.valid_authority": [`${ISSUER} ${UNTIL}`, EXPIRED, AUTHORITY],
  "certificates.valid_file": [`{setting} ${UNTIL}`, EXPIRED, FILE],
  "clock.early": ["l'orologio segna {date}", CLOCK, TIME_SERVER],
  "clock.set_back": ["l'orologio segna {date}, e il gateway è stato avviato {started}", CLOCK, TIME_SERVER],
  "clock.unknown": ["il kernel non segnala se l'orologio è sincronizzato"],
  "clock.synchronized": ["è sincronizzato con un server dell'ora"],
  "clock.not_synchronized": ["non è sincronizzato", `si sposta di alcuni secondi al giorno: ${CLOCK}`, TIME_SERVER],
  "clock.no_battery": ["non è sincronizzato, e la macchina non ha un orologio con batteria", `si sposta di alcuni secondi al giorno: ${CLOCK}`, TIME_SERVER],
  "disk.read_only": ["{place} è di sola lettura", "non si può memorizzare nulla, quindi gli aggiornamenti vengono rifiutati", "il kernel lo fa dopo errori del file system: controlla `dmesg`, fai un backup, sostituisci la scheda"],
  "disk.passing": ["la cartella dei dati è su {kind}", "il suo contenuto può andare perso con un riavvio", "imposta data_dir su una cartella di un disco"],
  "disk.inodes": ["su {place} c'è posto solo per altri {count} file", "senza inode non si può creare alcun file", "trova una cartella con moltissimi file piccoli e svuotala"],
  "disk.full": [FREE, "con il disco pieno gli aggiornamenti vengono rifiutati; le interrogazioni continuano, e le misure aspettano presso il broker", SPACE],
  "disk.little": [`${FREE}; al gateway possono servire {needed} MB`, "con il disco pieno gli aggiornamenti vengono rifiutati", SPACE],
  "disk.free": [FREE],
  "files.no_directory": ["{directory} non c'è ancora; la crea il gateway"],
  "files.in_order": ["{directory} è in ordine"],
  "files.readable": ["altri utenti di questa macchina hanno accesso a {names}", "possono leggere dati per cui serve un token", "chmod go= {paths}", "{names}: solo per il proprietario"],
  "files.clients_damaged": ["{file} è danneggiato o illeggibile: {reason}", "il gateway non si avvia con la sicurezza, o i client vengono rifiutati", "ripristina un backup (edge restore); senza backup sposta il file e ammetti di nuovo i client"],
  "files.client_rows_damaged": ["{file} ha righe danneggiate: {rows}", "queste vengono rifiutate; tutte le altre funzionano", "un client: edge clients revoke, poi edge clients allow; una chiave di firma: edge clients rotate-key --now; una chiave OSCORE: edge clients oscore; oppure ripristina un backup (edge restore)"],
  "files.foreign": ["{names} non appartengono al proprietario di {directory}", "il gateway potrebbe non riuscire a scriverli", "chown --recursive --reference={directory} {directory}", "{count} di essi appartengono ora al proprietario della cartella"],
  "files.drafts": ["resti: {names}", "sono parti di file incompiuti e occupano spazio", "rm {paths}", "{names}: rimossi"],
  "files.endpoints": ["{file} contiene indirizzi, e nessun gateway è in funzione", "i comandi usano questi indirizzi", "rm {path}; il prossimo avvio lo riscrive", "{file}: rimosso"],
  "files.restore_draft": ["resto: {path}", "l'ha lasciato un ripristino interrotto, e occupa spazio", "rm -r {path}", "{name}: rimosso"],
  "files.before_restore": ["{path} è la cartella dei dati prima di un ripristino", "occupa spazio e contiene vecchi segreti", "rimuovila quando non ti serve più"],
  "files.staged": ["un backup è pronto per il ripristino", "il prossimo avvio del gateway sostituisce i suoi dati con quelli del backup", "riavvia il gateway, o rinuncia al backup: edge restore --unstage"],
  "files.log_stopped": ["{file} occupa {megabytes} MB", "occupa spazio finché il gateway non viene avviato", "avvia il gateway, o lascia che --fix lo trasferisca nel file", "il log write-ahead è ora nel file"],
  "files.log_held": ["{file} occupa {megabytes} MB", "un altro programma legge il file, quindi non si può svuotare", "termina gli altri programmi che lo tengono aperto (`fuser -v`)"],
  "gateway.no_access": ["questo utente non può leggere {directory}, quindi lo stato del suo gateway non è noto", "", "eseguilo come root (`sudo edge doctor`) o come l'utente del gateway"],
  "gateway.stopped": ["nessun gateway è in funzione su {directory}", "le misure vanno perse o aspettano presso il broker; alcuni controlli non sono possibili senza il gateway", "avvialo: `systemctl start edge` o `edge run`; scegli un altro gateway con --data-dir o --config"],
  "gateway.silent": ["è in funzione (processo {process}) e non risponde: {reason}", "neanche i client ricevono risposta; alcuni controlli non sono possibili senza risposta", "controlla il log (`journalctl -u edge`); aspetta se si sta avviando, altrimenti riavvialo: `systemctl restart edge`"],
  "gateway.denied": ["è in funzione (processo {process}), ma rifiuta il token in EDGE_TOKEN", "", "edge clients token NAME ne stampa uno"],
  "gateway.degraded": ["{reason}", "il gateway funziona solo in parte", "risolvi il problema segnalato; poi il gateway continua da solo"],
  "gateway.status": ["risponde {status}", "il gateway funziona solo in parte", "risolvi il problema segnalato; poi il gateway continua da solo"],
  "gateway.stalled": ["un componente non avanza: {component}: {reason}", "il watchdog lo riavvia se resta così", "controlla di nuovo"],
  "gateway.mapping_fault": ["una mappatura ha un errore: {reason}", "non ha effetto", "vedi `edge mapping check FILE`; il gateway carica il file appena viene salvato"],
  "gateway.mapping_fault_previous": ["una mappatura ha un errore: {reason}", "vale la sua versione precedente fino al riavvio del gateway", "vedi `edge mapping check FILE`; il gateway carica il file appena viene salvato"],
  "gateway.mapping_fault_announced": ["un dispositivo annuncia qualcosa che non si può usare: {reason}", "il valore manca, non si può impostare, non ha unità o segue l'annuncio precedente", "correggilo nel dispositivo, o mappa i suoi messaggi in un tuo file: docs/how-to/discovery.md, docs/sparkplug.md"],
  "gateway.rule_fault": ["una regola ha un errore: {reason}", "non ha effetto", "vedi `edge rules test FILE`; il gateway carica il file appena viene salvato"],
  "gateway.query_fault": ["un'interrogazione continua ha un errore: {reason}", "non ha effetto", "correggi il suo file, o pubblica di nuovo l'interrogazione"],
  "gateway.announce_fault": ["gli annunci a Home Assistant falliscono: {reason}", "Home Assistant potrebbe mostrare valori vecchi, o nessun dispositivo", "vedi docs/how-to/home-assistant.md; il gateway riprova"],
  "gateway.runs": ["la versione {version} è in funzione (processo {process}), e tutti i componenti avanzano"],
  "gateway.few_details": ["i client non autenticati ricevono pochi dettagli: arretrati e mappature non sono stati controllati", "", "export EDGE_TOKEN=$(edge clients token NAME) di un client che può amministrare"],
  "memory.unknown": ["il kernel non la segnala"],
  "memory.free": ["sono liberi {free} MB su {total} MB", MEMORY, PROCESSES],
  "memory.free_own": ["sono liberi {free} MB su {total} MB; il gateway occupa {own} MB", MEMORY, PROCESSES],
  "memory.swap": ["{megabytes} MB sono nello spazio di swap sulla scheda", "questo consuma la scheda ed è lento", PROCESSES],
  "memory.killed": ["dal suo avvio il kernel ha terminato {count} processi per mancanza di memoria", MEMORY, `\`journalctl -k | grep -i oom\` mostra quali; ${PROCESSES}`],
  "modbus.answers": ["il dispositivo Modbus {name} risponde"],
  "modbus.no_value": ["il dispositivo Modbus {name} risponde, ma non dà nessun valore di {values}", "queste osservazioni mantengono l'ultimo valore", "vedi /api/bad-values per la risposta del dispositivo; prova il registro con `edge modbus read` (docs/modbus.md)"],
  "modbus.silent": ["il dispositivo Modbus {name} non risponde{reason}", "i suoi valori non vengono aggiornati, e i comandi aspettano", "controlla alimentazione e cablaggio, e host, `unit_id`, `baud` e `parity` nel file di mappatura (docs/modbus.md); il gateway riprova da solo"],
  "sparkplug.connected": ["nodi e dispositivi Sparkplug connessi: {count}"],
  "sparkplug.refused": ["la nascita del dispositivo Sparkplug {name} è rifiutata{reason}", "i suoi valori vengono ignorati", "elimina la causa (docs/sparkplug.md), poi riavvia il nodo"],
  "sparkplug.away": ["il nodo o dispositivo Sparkplug {name} non è connesso", "i suoi valori sono vecchi, e i comandi aspettano la sua nascita", "controlla la sua alimentazione, la sua connessione al broker e il suo identificatore dell'host primario (docs/sparkplug.md)"],
  "sparkplug.more": ["altri nodi e dispositivi Sparkplug non connessi o rifiutati: {count}", "i loro valori sono vecchi o ignorati", "vedi `sparkplug` in /health"],
  "recent.off": ["i valori recenti non vengono conservati: recent.enabled è false"],
  "recent.files_damaged": ["{count} file di valori recenti sono danneggiati: {names}", GAP, RESTORE],
  "recent.more_files_damaged": ["{count} file di valori recenti sono danneggiati: {names} e altri {more}", GAP, RESTORE],
  "recent.bytes": ["i valori recenti occupano {megabytes} MB, al massimo {limit} MB"],
  "recent.not_written": ["i valori recenti non vengono scritti: {reason}", "aspettano in memoria, e i più vecchi vengono scartati quando è piena", "libera spazio sul disco, o rendi DATA_DIR/recent una cartella scrivibile; il gateway riprova da solo"],
  "recent.parts_damaged": ["dall'avvio sono state trovate {count} parti danneggiate dei valori recenti", GAP, "il log ha i nomi dei file (recent.file_damaged); se succede di nuovo, controlla la scheda"],
  "recent.removed": ["dall'avvio {count} file di valori recenti sono stati rimossi prima del tempo", "occupavano più di recent.max_bytes, quindi i grafici cominciano più tardi", "un recent.max_bytes più grande, o recent.raw_hours e recent.minutes_days più brevi"],
  "restarts.first": ["qui non è ancora stato eseguito nulla"],
  "restarts.unreadable": ["{file} è illeggibile: {reason}"],
  "restarts.none": ["avvii finora: {count}; nessuno dell'ultimo giorno dopo un guasto"],
  "restarts.crashed": [`${ENDED}terminato o bloccato mentre la macchina restava accesa{detail}`, DOWNTIME, "controlla il log del kernel (`journalctl -k | grep -i -e oom -e segfault`) e il log prima dell'avvio"],
  "restarts.power": [`${ENDED}interruzione di corrente o reset della macchina{detail}`, DOWNTIME, "controlla l'alimentazione, e se un watchdog hardware ha riavviato la macchina"],
  "restarts.lost": [`${ENDED}non è riuscito a ripararsi ed è terminato{detail}`, DOWNTIME, "il motivo nomina il componente fermo; `edge engine` mostra il costo degli aggiornamenti"],
  "restarts.stuck": [`${ENDED}il ciclo degli eventi era fermo ed è terminato{detail}`, DOWNTIME, "il log ha lo stack (`journalctl -u edge`); segnalalo, per favore"],
  "restarts.stop_timeout": [`${ENDED}non si è fermato in tempo ed è stato terminato{detail}`, DOWNTIME, "un disco o un client era lento; considera un shutdown.timeout più lungo"],
  "restarts.start_failed": [`${ENDED}non è riuscito ad avviarsi{detail}`, DOWNTIME, "il log ha il motivo; `edge config check` controlla le impostazioni"],
  "restarts.unknown": [`${ENDED}la sua registrazione è illeggibile{detail}`, DOWNTIME, "il file last-run.json era danneggiato, forse dalla scheda"],
  "serial.connected": ["la porta {name} è connessa"],
  "serial.not_connected": ["la porta {name} non è connessa{reason}", "il suo dispositivo non invia misure e non riceve comandi", "controlla la spina, `device` nel file di mappatura e il gruppo dialout (docs/serial.md); il gateway si riconnette da solo"],
  "temperature.degrees": ["{degrees} °C", HEAT, AIR],
  "temperature.low_voltage": ["la tensione è troppo bassa", POWER, SUPPLY],
  "temperature.voltage": ["la tensione è giusta"],
  "temperature.unknown": ["il kernel non conosce sensori di temperatura di questa macchina"],
  "temperature.was_low": ["la tensione è stata troppo bassa dall'avvio della macchina", POWER, SUPPLY],
  "temperature.slowed": ["il firmware rallenta il processore", HEAT, `${AIR}; ${SUPPLY}`],
  "temperature.was_slowed": ["il processore è stato rallentato dall'avvio della macchina", HEAT, `${AIR}; ${SUPPLY}`],
  "temperature.firmware": ["il firmware vede abbastanza alimentazione e non rallenta nulla"],
  "units.no_systemd": ["systemd non è in funzione qui"],
  "units.others_failed": ["unit fallite: {names}", "un servizio della macchina non funziona", "systemctl status {units}"],
  "units.not_there": ["systemd non ha {unit}: il gateway non si avvia con la macchina, o lo avvia un altro programma"],
  "units.failed": ["{unit} è fallita ({result})", "systemd non la riavvia", "`journalctl -u {unit} -n 50` ha il motivo; poi `systemctl restart {unit}`"],
  "units.inactive": ["{unit} è {state}", "il gateway è fermo", "systemctl start {unit}"],
  "units.disabled": ["{unit} non è abilitata", "dopo un'interruzione di corrente il gateway resta fermo", "systemctl enable {unit}"],
  "units.restarted": ["systemd ha riavviato il gateway {count} volte", "termina inaspettatamente", "vedi il controllo `restarts` e il log"],
  "units.active": ["{unit} è attiva, e non è mai stata riavviata"],
  "update.undone": ["l'aggiornamento a {version} è stato annullato: il suo gateway non funzionava correttamente", "la macchina esegue il sistema precedente", "installane uno più recente: docs/images.md; i suoi eventuali resti sono in /data/of-undone-update"],
  "update.trial": ["l'aggiornamento a {version} non è ancora confermato", "viene annullato se il suo gateway non funziona correttamente", "se la macchina non è stata riavviata dopo l'installazione: `reboot`"],
  "update.none": ["nessun aggiornamento è stato annullato, e nessuno aspetta la conferma"],
};
