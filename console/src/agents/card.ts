// The card of an agent of this server, as its clients read it (A2A 1.0 §4.4.1). Only what is shown is named here.

/** Of longer lists the first ones are shown. */
const LISTED = 200;

export interface Card {
  readonly description: string;
  readonly documentationUrl: string;
  readonly provider: { readonly organization: string; readonly url: string };
  readonly skills: readonly {
    readonly id: string;
    readonly name: string;
    readonly description: string;
    readonly tags: readonly string[];
    readonly examples: readonly string[];
  }[];
  readonly capabilities: {
    readonly streaming: boolean;
    readonly pushNotifications: boolean;
    readonly extensions: readonly { readonly uri: string; readonly description: string; readonly required: boolean }[];
  };
  readonly defaultInputModes: readonly string[];
  readonly defaultOutputModes: readonly string[];
  readonly supportedInterfaces: readonly {
    readonly url: string;
    readonly protocolBinding: string;
    readonly protocolVersion: string;
  }[];
  /** The names of the schemes. */
  readonly securitySchemes: readonly string[];
}

export function cardUrl(id: string): string {
  return `${location.origin}/agents/${encodeURIComponent(id)}/.well-known/agent-card.json`;
}

/** What of a card can be shown, whoever wrote it: names are texts, and no two skills or extensions are the same one. */
export function cardOf(found: unknown): Card {
  const card = fieldsOf(found);
  const capabilities = fieldsOf(card["capabilities"]);
  const provider = fieldsOf(card["provider"]);
  return {
    description: textOf(card["description"]),
    documentationUrl: textOf(card["documentationUrl"]),
    provider: { organization: textOf(provider["organization"]), url: textOf(provider["url"]) },
    skills: unique(listOf(card["skills"]).map(fieldsOf), "id").map((skill) => ({
      id: textOf(skill["id"]),
      name: textOf(skill["name"]),
      description: textOf(skill["description"]),
      tags: listOf(skill["tags"]).map(textOf),
      examples: listOf(skill["examples"]).map(textOf),
    })),
    capabilities: {
      streaming: capabilities["streaming"] === true,
      pushNotifications: capabilities["pushNotifications"] === true,
      extensions: unique(listOf(capabilities["extensions"]).map(fieldsOf), "uri").map((extension) => ({
        uri: textOf(extension["uri"]),
        description: textOf(extension["description"]),
        required: extension["required"] === true,
      })),
    },
    defaultInputModes: listOf(card["defaultInputModes"]).map(textOf),
    defaultOutputModes: listOf(card["defaultOutputModes"]).map(textOf),
    supportedInterfaces: listOf(card["supportedInterfaces"])
      .map(fieldsOf)
      .map((each) => ({
        url: textOf(each["url"]),
        protocolBinding: textOf(each["protocolBinding"]),
        protocolVersion: textOf(each["protocolVersion"]),
      })),
    securitySchemes: Object.keys(fieldsOf(card["securitySchemes"])).slice(0, LISTED),
  };
}

/** An example of a skill: what somebody may say to the agent. */
export interface Example {
  readonly text: string;
  /** The id of the skill. */
  readonly skill: string;
}

/** The examples on a card, at most so many, one of each skill before a second one of any. */
export function examplesOf(card: Card | undefined, most: number): readonly Example[] {
  const skills = card?.skills ?? [];
  const found: Example[] = [];
  for (let place = 0; found.length < most && skills.some((skill) => skill.examples.length > place); place += 1) {
    for (const skill of skills) {
      const text = skill.examples[place];
      if (text !== undefined && text.trim() !== "" && found.length < most) found.push({ text, skill: skill.id });
    }
  }
  return found;
}

type Fields = Readonly<Record<string, unknown>>;

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as readonly unknown[]).slice(0, LISTED) : [];
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function unique(items: readonly Fields[], key: string): readonly Fields[] {
  const byKey = new Map(items.map((item) => [textOf(item[key]), item]));
  byKey.delete("");
  return [...byKey.values()];
}
