// An algorithm as a consumer, with Kafka's client and Avro alone. docs/contract.md says what it has to keep to.
//
// java -cp CLASSPATH Consume.java BOOTSTRAP PREFIX TRAINER RUN STEPS GROUPS SCHEMAS [FILE]
//
// Each step takes GROUPS complete groups and publishes a prompt with their mean reward. FILE gets every trajectory
// that was decoded, as Avro's JSON. Stop it at any moment, and start it again.

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.GenericRecordBuilder;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.io.JsonEncoder;
import org.apache.avro.message.BinaryMessageDecoder;
import org.apache.avro.message.BinaryMessageEncoder;
import org.apache.avro.message.MissingSchemaException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;

public class Consume {
  static final Duration WAIT = Duration.ofMillis(200);

  static String bootstrap, prefix, trainer, run;
  static Path schemas;

  /** The record, or null for one that is none of these, which is passed over. */
  static GenericRecord decode(BinaryMessageDecoder<GenericRecord> decoder, ConsumerRecord<byte[], byte[]> record) {
    try {
      return record.value() == null ? null : decoder.decode(record.value());
    } catch (MissingSchemaException error) {
      Header writer = record.headers().lastHeader("writer");
      if (writer == null) return null;
      throw new IllegalStateException("A record was written by Lightstream "
          + new String(writer.value(), StandardCharsets.UTF_8) + ": start this again with its schemas.", error);
    } catch (IOException | AvroRuntimeException error) {
      System.err.println("a record is passed over: " + error.getMessage());
      return null;
    }
  }

  static Schema schema(String file) throws IOException {
    return new Schema.Parser().parse(Files.readString(schemas.resolve(file)));
  }

  /** Reads what any version wrote, and gives it as the first one has it. */
  static BinaryMessageDecoder<GenericRecord> decoder(String record) throws IOException {
    BinaryMessageDecoder<GenericRecord> decoder = new BinaryMessageDecoder<>(GenericData.get(), schema(record + ".v1.avsc"));
    for (int version = 2; Files.exists(schemas.resolve(record + ".v" + version + ".avsc")); version++)
      decoder.addSchema(schema(record + ".v" + version + ".avsc"));
    return decoder;
  }

  static KafkaConsumer<byte[], byte[]> consumer(String group) {
    Properties config = new Properties();
    config.put("bootstrap.servers", bootstrap);
    config.put("group.id", group);
    config.put("isolation.level", "read_committed");
    config.put("enable.auto.commit", "false");
    config.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
    config.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
    return new KafkaConsumer<>(config);
  }

  static KafkaProducer<byte[], byte[]> producer(String transactionalId) {
    Properties config = new Properties();
    config.put("bootstrap.servers", bootstrap);
    config.put("transactional.id", transactionalId);
    config.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
    config.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
    return new KafkaProducer<>(config);
  }

  /** The trainer's committed steps, in order. Nobody else writes any by now. */
  static List<GenericRecord> pastSteps(BinaryMessageDecoder<GenericRecord> decoder) throws IOException {
    List<GenericRecord> steps = new ArrayList<>();
    TopicPartition only = new TopicPartition(prefix + "training-steps", 0);
    try (KafkaConsumer<byte[], byte[]> reader = consumer(prefix + trainer + "-steps")) {
      reader.assign(List.of(only));
      reader.seekToBeginning(List.of(only));
      long end = reader.endOffsets(List.of(only)).get(only);
      while (reader.position(only) < end) {
        for (ConsumerRecord<byte[], byte[]> record : reader.poll(WAIT)) {
          if (!trainer.equals(new String(record.key(), StandardCharsets.UTF_8))) continue;
          GenericRecord step = decode(decoder, record);
          if (step != null && step.get("trainer_id").toString().equals(trainer)) steps.add(step);
        }
      }
    }
    return steps;
  }

  /** Groups of the run's trajectories, until they are complete. */
  static class Groups {
    final Set<String> consumed = new HashSet<>(); // rollouts
    final Map<Integer, Long> nextOffsets = new TreeMap<>();
    final Map<String, Map<String, GenericRecord>> members = new LinkedHashMap<>();
    final Map<String, Map<Integer, Long>> first = new HashMap<>();

    /** Of a rollout's final trajectories that of the last attempt counts, in its last revision. */
    static boolean isOlder(GenericRecord one, GenericRecord other) {
      long attempt = (long) one.get("attempt_sequence");
      long otherAttempt = (long) other.get("attempt_sequence");
      if (attempt != otherAttempt) return attempt < otherAttempt;
      return (long) one.get("revision") < (long) other.get("revision");
    }

    void add(ConsumerRecord<byte[], byte[]> record, GenericRecord trajectory) {
      if (!trajectory.get("run_id").toString().equals(run) || !(boolean) trajectory.get("final")) return;
      String rollout = trajectory.get("rollout_id").toString();
      if (!trajectory.get("mode").toString().equals("train") || consumed.contains(rollout)) return;
      Object given = trajectory.get("group_id");
      String group = given == null || given.toString().isEmpty() ? rollout : given.toString();
      Map<String, GenericRecord> known = members.computeIfAbsent(group, any -> new TreeMap<>());
      GenericRecord before = known.get(rollout);
      if (before == null || isOlder(before, trajectory)) {
        known.put(rollout, trajectory);
        first.computeIfAbsent(group, any -> new HashMap<>()).putIfAbsent(record.partition(), record.offset());
      }
    }

    /** So many complete groups, or none. */
    Map<String, Map<String, GenericRecord>> take(int count) {
      Map<String, Map<String, GenericRecord>> taken = new LinkedHashMap<>();
      for (Map.Entry<String, Map<String, GenericRecord>> group : members.entrySet()) {
        long size = (long) group.getValue().values().iterator().next().get("group_size");
        if (group.getValue().size() >= size && taken.size() < count) taken.put(group.getKey(), group.getValue());
      }
      if (taken.size() < count) return Map.of();
      for (Map.Entry<String, Map<String, GenericRecord>> group : taken.entrySet()) {
        members.remove(group.getKey());
        first.remove(group.getKey());
        consumed.addAll(group.getValue().keySet());
      }
      return taken;
    }

    /** Partition -> the offset below which every group is consumed. */
    Map<Integer, Long> lowWater() {
      Map<Integer, Long> low = new TreeMap<>(nextOffsets);
      for (Map<Integer, Long> offsets : first.values())
        offsets.forEach((partition, offset) -> low.merge(partition, offset, Math::min));
      return low;
    }
  }

  static boolean ofAnotherRun(ConsumerRecord<byte[], byte[]> record) {
    Header header = record.headers().lastHeader("run");
    return header != null && !new String(header.value(), StandardCharsets.UTF_8).equals(run);
  }

  static String json(Schema schema, GenericRecord record) throws IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    JsonEncoder encoder = EncoderFactory.get().jsonEncoder(schema, out);
    new GenericDatumWriter<GenericRecord>(schema).write(record, encoder);
    encoder.flush();
    return out.toString(StandardCharsets.UTF_8);
  }

  static byte[] bytes(GenericRecord record) throws IOException {
    java.nio.ByteBuffer encoded = new BinaryMessageEncoder<GenericRecord>(GenericData.get(), record.getSchema()).encode(record);
    byte[] all = new byte[encoded.remaining()];
    encoded.get(all);
    return all;
  }

  static GenericRecord resources(Schema schema, long version, String mean) {
    String prompt = "{\"resource_type\": \"prompt_template\", \"template\": \"The mean is " + mean
        + ". {task}\", \"engine\": \"f-string\"}";
    return new GenericRecordBuilder(schema)
        .set("resources_id", run + "-v" + version)
        .set("version", version)
        .set("run_id", run)
        .set("resources", Map.of("prompt", prompt))
        .set("created_unix_nano", System.currentTimeMillis() * 1_000_000)
        .build();
  }

  static GenericRecord step(Schema schema, long number, long planned, Map<String, Map<String, GenericRecord>> taken,
      Map<Integer, Long> lowWater, double mean, Object resourcesId, long startedMs) {
    Schema ofConsumed = schema.getField("consumed").schema().getElementType();
    Schema ofPosition = schema.getField("low_water").schema().getElementType();
    List<GenericRecord> consumed = new ArrayList<>();
    taken.forEach((group, members) -> members.values().forEach(t -> consumed.add(new GenericRecordBuilder(ofConsumed)
        .set("rollout_id", t.get("rollout_id"))
        .set("attempt_id", t.get("attempt_id"))
        .set("revision", t.get("revision"))
        .set("group_id", group)
        .set("triplet_count", (long) ((List<?>) t.get("triplets")).size())
        .build())));
    List<GenericRecord> positions = new ArrayList<>();
    lowWater.forEach((partition, offset) -> positions.add(new GenericRecordBuilder(ofPosition)
        .set("topic", "trajectories").set("partition", (long) partition).set("offset", offset).build()));
    return new GenericRecordBuilder(schema)
        .set("trainer_id", trainer)
        .set("run_id", run)
        .set("step", number)
        .set("steps_planned", planned)
        .set("resources_id", resourcesId)
        .set("consumed", consumed)
        .set("metrics", Map.of("reward/mean", mean))
        .set("low_water", positions)
        .set("started_unix_nano", startedMs * 1_000_000)
        .set("ended_unix_nano", System.currentTimeMillis() * 1_000_000)
        .build();
  }

  public static void main(String[] arguments) throws Exception {
    bootstrap = arguments[0];
    prefix = arguments[1];
    trainer = arguments[2];
    run = arguments[3];
    long steps = Long.parseLong(arguments[4]);
    int count = Integer.parseInt(arguments[5]);
    schemas = Path.of(arguments[6]);
    Schema ofTrajectory = schema("trajectories/Trajectory.v1.avsc");
    Schema ofStep = schema("training-steps/TrainingStep.v1.avsc");
    Schema ofResources = schema("resources/ResourcesRecord.v1.avsc");
    BinaryMessageDecoder<GenericRecord> trajectories = decoder("trajectories/Trajectory");

    // 1. End what a former self left open; nobody else can commit as this trainer from here on.
    KafkaProducer<byte[], byte[]> producer = producer(prefix + trainer);
    producer.initTransactions();
    // 2. Only then read how far that self got.
    List<GenericRecord> past = pastSteps(decoder("training-steps/TrainingStep"));
    long number = past.isEmpty() ? 0 : (long) past.get(past.size() - 1).get("step");
    Groups groups = new Groups();
    for (GenericRecord step : past)
      for (Object consumed : (List<?>) step.get("consumed"))
        groups.consumed.add(((GenericRecord) consumed).get("rollout_id").toString());
    // 3. Read on from there. Partitions are assigned by hand: one consumer reads them all.
    KafkaConsumer<byte[], byte[]> consumer = consumer(prefix + trainer);
    String topic = prefix + "trajectories";
    List<TopicPartition> partitions = new ArrayList<>();
    consumer.partitionsFor(topic).forEach(found -> partitions.add(new TopicPartition(topic, found.partition())));
    consumer.assign(partitions);
    consumer.seekToBeginning(partitions);
    if (!past.isEmpty())
      for (Object position : (List<?>) past.get(past.size() - 1).get("low_water")) {
        GenericRecord at = (GenericRecord) position;
        consumer.seek(new TopicPartition(topic, (int) (long) at.get("partition")), (long) at.get("offset"));
      }
    for (TopicPartition partition : partitions) groups.nextOffsets.put(partition.partition(), consumer.position(partition));

    PrintWriter decoded = arguments.length < 8 ? null : new PrintWriter(arguments[7], StandardCharsets.UTF_8);
    while (number < steps) {
      long started = System.currentTimeMillis();
      Map<String, Map<String, GenericRecord>> taken;
      while ((taken = groups.take(count)).isEmpty())
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(WAIT)) {
          groups.nextOffsets.put(record.partition(), record.offset() + 1);
          if (ofAnotherRun(record)) continue;
          GenericRecord trajectory = decode(trajectories, record);
          if (trajectory == null) continue;
          if (decoded != null) decoded.println(json(ofTrajectory, trajectory));
          groups.add(record, trajectory);
        }
      number++;
      double sum = 0;
      int rewarded = 0;
      for (Map<String, GenericRecord> members : taken.values())
        for (GenericRecord trajectory : members.values())
          if (trajectory.get("reward") != null) {
            sum += (double) trajectory.get("reward");
            rewarded++;
          }
      double mean = sum / Math.max(1, rewarded);
      Map<Integer, Long> lowWater = groups.lowWater();
      GenericRecord resources = resources(ofResources, number - 1, String.format(java.util.Locale.ROOT, "%.3f", mean));
      GenericRecord step = step(ofStep, number, steps, taken, lowWater, mean, resources.get("resources_id"), started);
      Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
      lowWater.forEach((partition, offset) -> offsets.put(new TopicPartition(topic, partition), new OffsetAndMetadata(offset)));
      // 4. The step, what it made and the offsets, together or not at all.
      producer.beginTransaction();
      producer.send(new ProducerRecord<>(prefix + "training-steps", trainer.getBytes(StandardCharsets.UTF_8), bytes(step)));
      producer.send(new ProducerRecord<>(prefix + "resources",
          resources.get("resources_id").toString().getBytes(StandardCharsets.UTF_8), bytes(resources)));
      producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
      producer.commitTransaction();
      System.out.printf(java.util.Locale.ROOT, "step %d: mean reward %.3f%n", number, mean);
    }
    if (decoded != null) decoded.close();
    consumer.close();
    producer.close();
  }
}
